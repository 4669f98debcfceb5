package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Counts says what happened in one run, or in many.
type Counts struct {
	// Commands were sent, each counted once per delivery; Answers came back, of them Refused said no.
	Commands, Answers, Refused int
	// Retries are commands sent again because no answer came.
	Retries int
	// Repeated are commands whose answer was asked for again at the end.
	Repeated int
	// Compacted are rows of intervals that gave way to fewer, Forgotten answers that were forgotten at the end.
	Compacted, Forgotten int
	Faults               map[FaultKind]int
	// Refusals by code.
	Refusals map[string]int
}

// Add adds another run's.
func (c *Counts) Add(other Counts) {
	c.Commands += other.Commands
	c.Answers += other.Answers
	c.Refused += other.Refused
	c.Retries += other.Retries
	c.Repeated += other.Repeated
	c.Compacted += other.Compacted
	c.Forgotten += other.Forgotten
	if c.Faults == nil {
		c.Faults = make(map[FaultKind]int)
	}
	for kind, n := range other.Faults {
		c.Faults[kind] += n
	}
	if c.Refusals == nil {
		c.Refusals = make(map[string]int)
	}
	for code, n := range other.Refusals {
		c.Refusals[code] += n
	}
}

func (c Counts) String() string {
	return fmt.Sprintf("%d commands, %d answers (%d refusals), %d retries, %d repeated at the end, %d intervals compacted, %d answers forgotten; faults: %s",
		c.Commands, c.Answers, c.Refused, c.Retries, c.Repeated, c.Compacted, c.Forgotten, listCounts(c.Faults))
}

func listCounts[K ~string](counts map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// counter is Counts while they are counted.
type counter struct {
	mu     sync.Mutex
	counts Counts
	// reached is closed and replaced whenever more commands were sent.
	reached chan struct{}
}

func newCounter() *counter { return &counter{reached: make(chan struct{})} }

func (c *counter) snapshot() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	copied := c.counts
	copied.Faults, copied.Refusals = maps.Clone(c.counts.Faults), maps.Clone(c.counts.Refusals)
	return copied
}

// progress is how many commands were sent, and a channel that is closed when there are more.
func (c *counter) progress() (int, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts.Commands, c.reached
}

func (c *counter) sent(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Commands += n
	close(c.reached)
	c.reached = make(chan struct{})
}

func (c *counter) add(change func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.counts)
}

func (c *counter) fault(kind FaultKind) {
	c.add(func(counts *Counts) {
		if counts.Faults == nil {
			counts.Faults = make(map[FaultKind]int)
		}
		counts.Faults[kind]++
	})
}

func (c *counter) refused(code string) {
	c.add(func(counts *Counts) {
		if counts.Refusals == nil {
			counts.Refusals = make(map[string]int)
		}
		counts.Refused++
		counts.Refusals[code]++
	})
}
