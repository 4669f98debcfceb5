package ledger

import "fmt"

// Violation is one broken invariant, found by an audit. A sound ledger has none.
type Violation struct {
	// Invariant is its number, "I1" to "I10".
	Invariant string `json:"invariant"`
	// Subject is what breaks it: an account name, a reservation or pod UID, an entry key.
	Subject string `json:"subject"`
	// Detail carries the numbers of both sides.
	Detail string `json:"detail"`
}

func (v Violation) String() string { return fmt.Sprintf("%s %s: %s", v.Invariant, v.Subject, v.Detail) }

// Size counts the rows that an audit goes over.
type Size struct {
	Accounts     int64 `json:"accounts"`
	Reservations int64 `json:"reservations"`
	Allocations  int64 `json:"allocations"`
	Intervals    int64 `json:"intervals"`
	Entries      int64 `json:"entries"`
}
