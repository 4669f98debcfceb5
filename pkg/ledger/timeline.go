package ledger

import (
	"slices"
	"time"
)

// timeline is the metered time of one allocation: intervals that do not overlap, in the order of time (I3).
type timeline struct {
	pieces  []timelinePiece
	removed []Interval // stored ones that were cut or replaced
	// compacted: what is stored is fewer rows than there are pieces, and CompactedTime beside them.
	compacted bool
}

type timelinePiece struct {
	Interval
	stored bool
}

// span is [start, end).
type span struct{ start, end time.Time }

func (t *timeline) load(i Interval) { t.insertPiece(timelinePiece{Interval: i, stored: true}) }

// loadCompacted puts the pieces that compacted rows stand for in the place of whatever of these rows was loaded.
func (t *timeline) loadCompacted(pieces []Interval) {
	t.pieces, t.compacted = make([]timelinePiece, 0, len(pieces)), true
	for _, piece := range pieces {
		t.pieces = append(t.pieces, timelinePiece{Interval: piece, stored: true})
	}
}

func (t *timeline) insert(i Interval) { t.insertPiece(timelinePiece{Interval: i}) }

func (t *timeline) insertPiece(p timelinePiece) {
	at := t.firstEndingAfter(p.Start)
	if at < len(t.pieces) && t.pieces[at].Start.Before(p.End) {
		panic("ledger: interval of pod " + p.PodUID + " overlaps one that is already there")
	}
	t.pieces = slices.Insert(t.pieces, at, p)
}

// firstEndingAfter is the index of the first piece that ends after at.
func (t *timeline) firstEndingAfter(at time.Time) int {
	index, _ := slices.BinarySearchFunc(t.pieces, at, func(p timelinePiece, at time.Time) int {
		if p.End.After(at) {
			return 1
		}
		return -1
	})
	return index
}

// overlapping returns the pieces that share time with w, in the order of time.
func (t *timeline) overlapping(w span) []timelinePiece {
	from := t.firstEndingAfter(w.start)
	to := from
	for to < len(t.pieces) && t.pieces[to].Start.Before(w.end) {
		to++
	}
	return t.pieces[from:to]
}

// has reports whether an agent's interval with exactly these bounds is there.
func (t *timeline) has(w span) bool {
	found := t.overlapping(w)
	return len(found) == 1 && found[0].Source == SourceAgent && found[0].Start.Equal(w.start) && found[0].End.Equal(w.end)
}

// gaps returns the parts of w that no interval covers.
func (t *timeline) gaps(w span) []span {
	var gaps []span
	at := w.start
	for _, piece := range t.overlapping(w) {
		if at.Before(piece.Start) {
			gaps = append(gaps, span{at, piece.Start})
		}
		at = piece.End
	}
	if at.Before(w.end) {
		gaps = append(gaps, span{at, w.end})
	}
	return gaps
}

// clear takes everything inside w out, cutting the pieces at its edges in two. price gives the charge of what is left
// of a cut piece; the charges of the parts add up to the charge of the whole by I4.
func (t *timeline) clear(w span, price func(span) Microcredits) {
	from := t.firstEndingAfter(w.start)
	to := from
	var rest []timelinePiece
	for ; to < len(t.pieces) && t.pieces[to].Start.Before(w.end); to++ {
		piece := t.pieces[to]
		if piece.stored {
			t.removed = append(t.removed, piece.Interval)
		}
		for _, part := range []span{{piece.Start, w.start}, {w.end, piece.End}} {
			if part.start.Before(part.end) {
				kept := piece.Interval
				kept.Start, kept.End, kept.Charge = part.start, part.end, price(part)
				rest = append(rest, timelinePiece{Interval: kept})
			}
		}
	}
	t.pieces = slices.Replace(t.pieces, from, to, rest...)
}

// lastEnd is when the last interval ends, zero if there is none.
func (t *timeline) lastEnd() time.Time {
	if len(t.pieces) == 0 {
		return time.Time{}
	}
	return t.pieces[len(t.pieces)-1].End
}

// takeChanges returns what to remove and to add since the last call. expanded: the pieces were compacted, and all of them are to
// be added in the place of all rows.
func (t *timeline) takeChanges() (removed, added []Interval, expanded bool) {
	removed, t.removed = t.removed, nil
	if t.compacted && t.changed(removed) {
		t.compacted, expanded, removed = false, true, nil
		for i := range t.pieces {
			t.pieces[i].stored = false
		}
	}
	for i := range t.pieces {
		if !t.pieces[i].stored {
			t.pieces[i].stored = true
			added = append(added, t.pieces[i].Interval)
		}
	}
	return removed, added, expanded
}

func (t *timeline) changed(removed []Interval) bool {
	return len(removed) > 0 || slices.ContainsFunc(t.pieces, func(p timelinePiece) bool { return !p.stored })
}
