package turn

import "time"

// Account is what the queue knows of one account.
type Account struct {
	Name string
	// Parent is the account above; empty for one directly below the root. One that does not exist, or a cycle, counts as empty.
	Parent string
	// Weight of the account among its siblings, 1 or more; less is taken for 1.
	Weight int64
	// HalfLife is how long until usage counts half in comparisons among the accounts directly below this one, and its own
	// pods. 0 means Options.HalfLife.
	HalfLife time.Duration
	// Aging is the longest head start that a priority gives; see HeadStart.
	Aging time.Duration
	// MaxWait is how long the account's oldest pod waits, while nothing of the account runs, until it goes before all
	// accounts that are not below their guaranteed share. 0 means never.
	MaxWait time.Duration
	// Limits by class; a class that is not named has no limit and no guaranteed share.
	Limits map[string]Limit
	// Floors are minimums for some of the account's own pods.
	Floors []Floor
}

// Limit bounds the GPUs of one class that an account and everything below it hold at once, to Guaranteed + Borrowable.
type Limit struct{ Guaranteed, Borrowable int64 }

// Floor protects a minimum of GPUs of a class for the account's pods of one floor: while they hold fewer, they go first. Others use
// what of it is idle.
type Floor struct {
	Name, Class string
	GPUs        int64
}

// Options are what all accounts share.
type Options struct {
	// HalfLife among the accounts directly below the root, and where an account names none.
	HalfLife time.Duration
	// Patience is how long a pod is held back by a limit until it is no longer overtaken.
	Patience time.Duration
	// ShapeRetry is how long pods of one account that look alike wait for the one of them that fitted nowhere.
	ShapeRetry time.Duration
}

// Tick is how often averages, waits and timers are brought up to date at most.
const Tick = time.Second

// maxDepth bounds walks up the tree; it is the catalog's.
const maxDepth = 64

// halfLife of the comparisons directly below an account.
func (o Options) halfLife(a *Account) time.Duration {
	if a != nil && a.HalfLife > 0 {
		return a.HalfLife
	}
	return o.HalfLife
}
