package simulation

import (
	"slices"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// disturb does to a lane what networks, queues and restarted controllers do: some deliveries come again later, some at the
// same time through another writer, some late, some overtake each other, some travel together, and some keys come with
// other content.
func (g *laneGenerator) disturb() {
	var out []Delivery
	type parked struct {
		delivery Delivery
		after    int
	}
	var waiting []parked
	for _, d := range g.deliveries {
		switch {
		case chance(g.Rand, 15):
			if other, ok := g.conflicting(d); ok && chance(g.Rand, 200) {
				out = append(out, other) // first come, first served
			} else if ok {
				waiting = append(waiting, parked{other, len(out) + g.IntN(30)})
			}
		case chance(g.Rand, 60):
			waiting = append(waiting, parked{g.again(d), len(out) + 1 + g.IntN(60)})
		case chance(g.Rand, 40):
			d.Twin = (d.Writer + 1 + g.IntN(writers-1)) % writers
		}
		switch {
		case chance(g.Rand, 20):
			waiting = append(waiting, parked{d, len(out) + 1 + g.IntN(12)})
		case chance(g.Rand, 60) && len(out) > 0 && len(out[len(out)-1].Steps) < 6:
			last := &out[len(out)-1]
			last.Steps = append(slices.Clone(last.Steps), d.Steps...)
			last.At = later(last.At, d.At)
		default:
			out = append(out, d)
		}
		if len(out) > 1 && chance(g.Rand, 25) {
			out[len(out)-1], out[len(out)-2] = out[len(out)-2], out[len(out)-1]
		}
		waiting = slices.DeleteFunc(waiting, func(p parked) bool {
			due := p.after <= len(out)
			if due {
				p.delivery.At = later(p.delivery.At, d.At)
				out = append(out, p.delivery)
			}
			return due
		})
	}
	for _, p := range waiting {
		out = append(out, p.delivery)
	}
	g.deliveries = out
}

// again is the same delivery through any writer.
func (g *laneGenerator) again(d Delivery) Delivery {
	d.Writer, d.Twin = g.IntN(writers), -1
	return d
}

// conflicting is a delivery whose keys are those of another one with other content.
func (g *laneGenerator) conflicting(d Delivery) (Delivery, bool) {
	other := g.again(d)
	other.Steps = nil
	for _, step := range d.Steps {
		if changed, ok := otherContent(step.Command); ok {
			other.Steps = append(other.Steps, Step{Command: changed})
		}
	}
	return other, len(other.Steps) > 0
}

// otherContent changes what a command says but not its key, such that either of the two is sound.
func otherContent(command ledger.Command) (ledger.Command, bool) {
	switch c := command.(type) {
	case ledger.PostGrant:
		c.Amount++
		return c, true
	case ledger.Adjust:
		c.Reason += ", again"
		return c, true
	case ledger.Transfer:
		c.Amount++
		return c, true
	case ledger.PlaceHold:
		c.GPUSeconds++
		return c, true
	case ledger.RenewHold:
		c.GPUSeconds++
		return c, true
	case ledger.RecordInterval:
		c.End = ledger.Instant(c.Start.Add(c.End.Sub(c.Start) / 2))
		return c, c.Start.Before(c.End)
	case ledger.EndAllocation:
		if !c.StartedAt.IsZero() {
			c.EndedAt = c.EndedAt.Add(7_000_000_000)
			return c, true
		}
	case ledger.Refund:
		c.Reason += ", again"
		return c, true
	case ledger.SetRate:
		c.Rate++
		return c, true
	}
	return nil, false
}
