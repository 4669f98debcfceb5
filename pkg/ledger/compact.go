package ledger

import (
	"fmt"
	"time"
)

// CompactedTime is the metered time of an allocation that ended, in as few numbers as say exactly which intervals it was. The
// intervals themselves give way to one for each stretch of time that one source vouches for, at the same price (I4). From this
// the pieces come back when a late report has to be compared with them. When each was received is not kept: the entries of
// their charges say when they were recorded.
type CompactedTime struct {
	PodUID string
	// Runs are in the order of time.
	Runs []Run
	// ReceivedAt is when the last piece was.
	ReceivedAt time.Time
}

// Run is Count intervals of one Length and Source, each beginning where the one before it ends. An agent that cuts on the minute
// leaves three of an hour: what is left of the first minute, 59 whole ones, and the beginning of the last.
type Run struct {
	Start  time.Time
	Length time.Duration // whole microseconds, 1 or more
	Count  int64         // 1 or more
	Source IntervalSource
}

// End is where the last interval of the run ends.
func (r Run) End() time.Time { return r.Start.Add(time.Duration(r.Count) * r.Length) }

// Pieces are how many intervals there were.
func (c CompactedTime) Pieces() (count int64) {
	for _, run := range c.Runs {
		count += run.Count
	}
	return count
}

// Expand returns the intervals, priced by the allocation's terms. It fails on runs that CompactTime never makes.
func (c CompactedTime) Expand(a Allocation) ([]Interval, error) {
	pieces := make([]Interval, 0, c.Pieces())
	at := a.StartedAt
	for _, run := range c.Runs {
		if run.Length < time.Microsecond || run.Count < 1 || run.Start.Before(at) {
			return nil, fmt.Errorf("the compacted time of pod %s is damaged: %d intervals of %s from %s on, after %s; run an audit",
				c.PodUID, run.Count, run.Length, stamp(run.Start), stamp(at))
		}
		for at = run.Start; at.Before(run.End()); at = at.Add(run.Length) {
			end := at.Add(run.Length)
			charge, err := ChargeBetween(a.Rate, a.GPUs, a.StartedAt, at, end)
			if err != nil {
				return nil, fmt.Errorf("expand the compacted time of pod %s: %w", c.PodUID, err)
			}
			pieces = append(pieces, Interval{PodUID: c.PodUID, Start: at, End: end, Source: run.Source, Charge: charge, ReceivedAt: c.ReceivedAt})
		}
	}
	return pieces, nil
}

// CompactTime decides what becomes of an allocation's intervals, all of which are given in the order of time: rows are what takes
// their place, whole what they were. An allocation is compacted only once it has ended and everything adds up: prices, their sum,
// and the time without a gap. What does not is an error and stays as it is, for audits to name: compaction must not cover it up.
func CompactTime(a Allocation, pieces []Interval) (rows []Interval, whole CompactedTime, err error) {
	unsound := func(format string, args ...any) ([]Interval, CompactedTime, error) {
		return nil, CompactedTime{}, fmt.Errorf("pod %s is not compacted: "+format, append([]any{a.PodUID}, args...)...)
	}
	if a.State != AllocationEnded {
		return unsound("it is %s", a.State)
	}
	whole.PodUID = a.PodUID
	at, sum := a.StartedAt, Microcredits(0)
	for i, piece := range pieces {
		// Time that nobody holds may lie between the pod's end and what was metered after it, and nowhere else.
		if piece.Start.Before(at) || piece.Start.After(at) && at.Before(a.EndedAt) {
			return unsound("an interval starts at %s, and the time before it is known until %s", stamp(piece.Start), stamp(at))
		}
		price, err := ChargeBetween(a.Rate, a.GPUs, a.StartedAt, piece.Start, piece.End)
		if err != nil || price != piece.Charge {
			return unsound("[%s, %s) is charged %d and costs %d", stamp(piece.Start), stamp(piece.End), piece.Charge, price)
		}
		if i > 0 && piece.Start.Equal(at) && rows[len(rows)-1].Source == piece.Source {
			last := &rows[len(rows)-1]
			last.End, last.Charge, last.ReceivedAt = piece.End, last.Charge+piece.Charge, later(last.ReceivedAt, piece.ReceivedAt)
		} else {
			rows = append(rows, piece)
		}
		whole.add(piece)
		at, sum = piece.End, sum+piece.Charge
	}
	if at.Before(a.EndedAt) && !a.StartedAt.IsZero() {
		return unsound("it ended at %s, and its time is known until %s", stamp(a.EndedAt), stamp(at))
	}
	if sum != a.Charged {
		return unsound("its intervals add up to %d, and %d is charged", sum, a.Charged)
	}
	return rows, whole, nil
}

// add continues the last run, or begins one.
func (c *CompactedTime) add(piece Interval) {
	c.ReceivedAt = later(c.ReceivedAt, piece.ReceivedAt)
	length := piece.End.Sub(piece.Start)
	if n := len(c.Runs); n > 0 {
		if last := &c.Runs[n-1]; last.Source == piece.Source && last.Length == length && last.End().Equal(piece.Start) {
			last.Count++
			return
		}
	}
	c.Runs = append(c.Runs, Run{Start: piece.Start, Length: length, Count: 1, Source: piece.Source})
}

// CompactionCursor is how far a pass over the allocations that ended has come; the zero value is its beginning.
type CompactionCursor struct {
	EndedAt time.Time
	PodUID  string
}

// CompactionResult is what one step of compaction did.
type CompactionResult struct {
	// Allocations were looked at and are as compact as they get; Intervals gave way to Rows in them.
	Allocations, Intervals, Rows int64
	// Unsound says of each allocation that does not add up why it was left as it is.
	Unsound []string
	// Next is where the pass goes on; More says that it is not at its end.
	Next CompactionCursor
	More bool
	// Busy: a writer was at one of these allocations, so the step did nothing rather than have it wait.
	Busy bool
}

// ForgetCursor is how far a pass over old answers has come; the zero value is its beginning.
type ForgetCursor struct{ DecidedAt time.Time }

// ForgetResult is what one step of forgetting did.
type ForgetResult struct {
	// Examined answers were old enough, Forgotten went.
	Examined, Forgotten int64
	// Next is where the pass goes on; More says that it is not at its end.
	Next ForgetCursor
	More bool
}
