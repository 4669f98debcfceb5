package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Violation is one broken invariant, found by an audit. A sound ledger has none.
type Violation struct {
	// Invariant is its number, "I1" to "I10".
	Invariant string `json:"invariant"`
	// Subject is what breaks it: an account name, a reservation or pod UID, an entry key.
	Subject string `json:"subject"`
	// Detail carries the numbers of both sides.
	Detail string `json:"detail"`
	// Accounts are those whose money it concerns; none where it concerns the ledger as a whole.
	Accounts []string `json:"accounts,omitempty"`
	// Entry is the ID of the first entry that differs, where entries differ from their seals; else 0.
	Entry int64 `json:"entry,omitempty"`
	// Mark tells it from other violations of the same invariant and subject, and stays the same for as long as it lasts,
	// whatever else happens to the account: by how much two figures differ, not the figures.
	Mark string `json:"-"`
}

func (v Violation) String() string { return fmt.Sprintf("%s %s: %s", v.Invariant, v.Subject, v.Detail) }

// ID is the same for the same violation at every audit, and differs from every other one's.
func (v Violation) ID() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{v.Invariant, v.Subject, v.Mark}))
	return hex.EncodeToString(sum[:12])
}

// Size counts the rows that an audit goes over.
type Size struct {
	Accounts     int64 `json:"accounts"`
	Reservations int64 `json:"reservations"`
	Allocations  int64 `json:"allocations"`
	Intervals    int64 `json:"intervals"`
	Entries      int64 `json:"entries"`
}
