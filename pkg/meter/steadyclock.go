package meter

import "time"

const (
	// stepTolerance is how far wall clock and monotonic clock may drift apart between two looks at the node; time
	// daemons slew by at most 0.5 ms per second, and a look takes seconds.
	stepTolerance = 2 * time.Second
	// stepBelief is how long a forward step of the wall clock must stand before it is believed. A clock that is put
	// right within that time has charged nobody.
	stepBelief = 10 * time.Minute
)

// SteadyClock is a wall clock that does not run ahead of elapsed time. A wall clock that jumps forward would turn the
// jump into held time; the steady one goes on at its own pace until the new time has stood for stepBelief. Steps back
// are followed at once: they can only delay a cut.
type SteadyClock struct {
	base    time.Time     // wall time at elapsed
	elapsed time.Duration // monotonic
	// ahead is when, by elapsed time, the wall clock was first seen ahead; negative while it is not.
	ahead time.Duration
	// Steps counts the steps seen, forward and back.
	Steps int
}

// Now takes a reading of the wall clock and of a monotonic clock, and returns the time to go by.
func (c *SteadyClock) Now(wall time.Time, elapsed time.Duration) time.Time {
	wall = wall.Round(0).UTC()
	if c.base.IsZero() {
		c.base, c.elapsed, c.ahead = wall, elapsed, -1
		return wall
	}
	expected := c.base.Add(elapsed - c.elapsed)
	switch {
	case wall.After(expected.Add(stepTolerance)):
		if c.ahead < 0 {
			c.ahead = elapsed
			c.Steps++
		}
		if elapsed-c.ahead < stepBelief {
			c.base, c.elapsed = expected, elapsed
			return expected
		}
	case wall.Before(expected.Add(-stepTolerance)):
		c.Steps++
	}
	c.base, c.elapsed, c.ahead = wall, elapsed, -1
	return wall
}
