package placement

const (
	// reviseEvery is after how many pods the scarcity of room is looked at anew. In a cluster of thousands of devices 100 pods change it by
	// a few per cent, and looking costs some milliseconds.
	reviseEvery = 100
	// imagineAtLeast and imagineAtMost bound after how many pods futures are drawn anew: a third of all that were seen, as the mix of
	// many changes slowly.
	imagineAtLeast, imagineAtMost = 8, HalfLife / 2
)

// Forecast learns the mix of what is submitted and keeps an outlook that follows it. It is not safe for use by several goroutines;
// the outlooks it returns are.
type Forecast struct {
	mix     *Mix
	outlook *Outlook
	// reviseAt and imagineAt are the numbers of pods seen at which the outlook is due.
	reviseAt, imagineAt int
}

// NewForecast returns a forecast that has seen nothing.
func NewForecast() *Forecast { return &Forecast{mix: NewMix()} }

// Observe counts a pod that was submitted.
func (f *Forecast) Observe(r Request) { f.mix.Observe(r) }

// Due reports whether Outlook would look at the nodes.
func (f *Forecast) Due() bool {
	return f.outlook == nil || f.mix.Seen >= min(f.reviseAt, f.imagineAt)
}

// NodesChanged makes the outlook due: there are other nodes than before, or they are others.
func (f *Forecast) NodesChanged() { f.reviseAt = 0 }

// Outlook returns the outlook, made anew from the nodes if that is due.
func (f *Forecast) Outlook(nodes func() []Node) *Outlook {
	seen := f.mix.Seen
	switch {
	case !f.Due():
		return f.outlook
	case f.outlook == nil || seen >= f.imagineAt:
		f.outlook = NewOutlook(f.mix.Kinds(), nodes())
		f.imagineAt = seen + min(max(seen/3, imagineAtLeast), imagineAtMost)
	default:
		f.outlook = f.outlook.Revise(f.mix.Kinds(), nodes())
	}
	f.reviseAt = seen + reviseEvery
	return f.outlook
}
