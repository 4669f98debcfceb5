package meter

import "time"

// Span is [Start, End), with Start before End.
type Span struct{ Start, End time.Time }

// Held is the part of a pod's held time that is confirmed.
type Held struct {
	// Start is when the pod began to hold its devices.
	Start time.Time
	// Until is how far it is confirmed. While the pod runs, later looks confirm more.
	Until time.Time
	// Ended: Until is the pod's own end, and there will be no more.
	Ended bool
}

// Cut cuts what is confirmed of held and not cut yet into spans that end on whole multiples of interval since the Unix
// epoch, so that an agent which lost its memory cuts the same spans again. lastCut is where the previous cut ended, zero
// if there was none. The first span begins at the pod's start, the last ends at its end. Nothing after now is cut, and
// a clock that went back yields nothing until it has caught up. At most most spans are returned; the next call goes on
// after them. interval is whole microseconds, 1 or more.
func Cut(held Held, lastCut, now time.Time, interval time.Duration, most int) []Span {
	from := held.Start
	if lastCut.After(from) {
		from = lastCut
	}
	until := held.Until
	if now.Before(until) {
		until = now
	}
	var spans []Span
	for len(spans) < most {
		next := boundaryAfter(from, interval)
		if next.After(until) {
			// An end that lies ahead of the clock is left until the clock confirms it.
			if held.Ended && until.Equal(held.Until) && from.Before(until) {
				spans = append(spans, Span{from, until})
			}
			break
		}
		spans = append(spans, Span{from, next})
		from = next
	}
	return spans
}

// boundaryAfter is the first multiple of interval since the Unix epoch that is later than t.
func boundaryAfter(t time.Time, interval time.Duration) time.Time {
	step := interval.Microseconds()
	micros := t.UnixMicro()
	past := micros % step
	if past < 0 {
		past += step
	}
	return time.UnixMicro(micros - past + step).UTC()
}
