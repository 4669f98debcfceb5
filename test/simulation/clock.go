package simulation

import (
	"sync/atomic"
	"time"
)

// clock is a writer's: simulated time, which deliveries push forward, and what the writer's own clock is wrong by. It
// implements k8s.io/utils/clock.PassiveClock.
type clock struct {
	simulated atomic.Int64 // Unix µs, only grows
	offset    atomic.Int64 // ns
}

func newClock() *clock {
	c := &clock{}
	c.simulated.Store(start.UnixMicro())
	return c
}

// reach makes it at least at in simulated time.
func (c *clock) reach(at time.Time) {
	for micros := at.UnixMicro(); ; {
		now := c.simulated.Load()
		if now >= micros || c.simulated.CompareAndSwap(now, micros) {
			return
		}
	}
}

func (c *clock) jump(offset time.Duration) { c.offset.Store(int64(offset)) }

// Now is the writer's idea of the time.
func (c *clock) Now() time.Time {
	return time.UnixMicro(c.simulated.Load()).UTC().Add(time.Duration(c.offset.Load()))
}

// Since is what has passed since t by the writer's clock.
func (c *clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
