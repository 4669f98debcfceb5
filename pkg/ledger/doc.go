// Package ledger decides who may spend GPU time and what it costs.
//
// It holds the nouns (accounts, entries, reservations, allocations, intervals), the prices, the legal
// transitions, and one pure function, Decide, that turns a state and a list of commands into verdicts and
// changes. It does no I/O, reads no clock and uses only the standard library; package postgres makes what it
// decides durable, and states the same invariants again as constraints.
//
// # Invariants
//
//	I1  for every account and every ancestor: balance − reserved ≥ −overdraft limit after every hold; reserved ≥ 0
//	I2  the projection equals the fold of entries and open reservations
//	I3  no two charges of one allocation overlap; a GPU charged to two allocations at once is kept as a discrepancy
//	I4  however held time is cut into intervals, the sum of charges is the same
//	I5  a reservation reaches exactly one of Settled, Released, Expired, once
//	I6  repeating a command with the same key and content repeats the answer; other content is an error
//	I7  a write under a stale leader or owner epoch changes nothing
//	I8  entries are append-only
//	I9  real usage is never refused
//	I10 the sum over all accounts of every entry is zero
//
// # States
//
// An open reservation may set nothing aside for a while, when its workload waits to be admitted again (PauseHold, EnsureHold).
//
//	reservation   Held ──allocate──► Active ──settle──► Settled
//	                │ └──cancel────► Released      (no usage)
//	                └──reconciled──► Expired       (object confirmed absent)
//
//	allocation    Intended ─► Bound ─► Metering ─► Ended
//	                │   ▲        │         │ ▲
//	                ▼   │        └────┬────┘ │
//	              Released         Suspect ──┘       node silent, nothing released
//
// A Released allocation is an intent that was given up before the pod was bound; the same pod may be placed again.
// Reports may be lost or come late, so a state may be skipped; all transitions are:
//
//	reservation Held       to Active, Released, Expired
//	reservation Active     to Settled
//	allocation  Intended   to Released, Bound, Metering, Ended
//	allocation  Released   to Intended, Bound, Metering, Ended
//	allocation  Bound      to Metering, Suspect, Ended
//	allocation  Metering   to Suspect, Ended
//	allocation  Suspect    to Bound, Metering, Ended
package ledger
