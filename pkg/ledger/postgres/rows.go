package postgres

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Each scan function reads the columns that the statements of its table list, in their order.

func scanAccount(row pgx.CollectableRow) (a ledger.Account, err error) {
	var policy string
	var spentSince, refilledAt, lastEntryAt, dueAt *time.Time
	if err := row.Scan(&a.Name, &a.Parent, &policy, &a.PolicyVersion, &a.Frozen, &a.Balance, &a.Reserved, &a.Held, &a.Charged, &a.Running,
		&a.SubtreeBalance, &a.SubtreeReserved, &a.SubtreeHeld, &a.SubtreeRunning, &a.SubtreeOverspent, &a.SubtreeSpent, &spentSince,
		&refilledAt, &lastEntryAt, &dueAt, &a.Revision); err != nil {
		return a, err
	}
	a.SpentSince, a.RefilledAt = fromNullable(spentSince), fromNullable(refilledAt)
	a.LastEntryAt, a.DueAt = fromNullable(lastEntryAt), fromNullable(dueAt)
	a.Policy, err = policies.read(policy)
	return a, err
}

func scanLot(row pgx.CollectableRow) (l ledger.Lot, err error) {
	err = row.Scan(&l.Key, &l.Account, &l.Amount, &l.Free, &l.Held, &l.Expired, &l.ExpiresAt)
	l.ExpiresAt = l.ExpiresAt.UTC()
	return l, err
}

func scanReservation(row pgx.CollectableRow) (r ledger.Reservation, err error) {
	var createdAt, closedAt *time.Time
	var takes string
	if err := row.Scan(&r.UID, &r.Account, &r.Payer, &r.PolicyVersion, &r.Workload.Kind, &r.Workload.Namespace, &r.Workload.Name, &r.Class,
		&r.RateVersion, &r.Rate, &r.MaxGPUs, &r.GPUSeconds, &r.Amount, &takes, &r.Charged, &r.State, &r.Reason, &createdAt, &closedAt); err != nil {
		return r, err
	}
	r.CreatedAt, r.ClosedAt = fromNullable(createdAt), fromNullable(closedAt)
	r.Takes, err = readTakes(takes)
	return r, err
}

func scanAllocation(row pgx.CollectableRow) (ledger.Allocation, error) { return scanAllocationAnd(row) }

// scanAllocationAnd reads the columns that a statement has behind an allocation's, too.
func scanAllocationAnd(row pgx.CollectableRow, more ...any) (a ledger.Allocation, err error) {
	var intendedAt, startedAt, endedAt, lastSeen *time.Time
	err = row.Scan(append([]any{&a.PodUID, &a.Pod.Namespace, &a.Pod.Name, &a.Reservation, &a.Account, &a.Node, &a.Class,
		&a.RateVersion, &a.Rate, &a.GPUs, &a.GPUUUIDs, &a.LeaderEpoch, &a.State,
		&intendedAt, &startedAt, &endedAt, &lastSeen, &a.Charged, &a.Refunded, &a.RefundedFor}, more...)...)
	a.Pod.Kind = podKind
	a.IntendedAt, a.StartedAt = fromNullable(intendedAt), fromNullable(startedAt)
	a.EndedAt, a.LastSeen = fromNullable(endedAt), fromNullable(lastSeen)
	if len(a.GPUUUIDs) == 0 {
		a.GPUUUIDs = nil
	}
	return a, err
}

// podKind is the kind of every allocation's pod; it has no column.
const podKind = "Pod"

func scanInterval(row pgx.CollectableRow) (i ledger.Interval, err error) {
	err = row.Scan(&i.PodUID, &i.Start, &i.End, &i.Source, &i.Charge, &i.ReceivedAt)
	i.Start, i.End, i.ReceivedAt = i.Start.UTC(), i.End.UTC(), i.ReceivedAt.UTC()
	return i, err
}

func scanCompacted(row pgx.CollectableRow) (c ledger.CompactedTime, err error) {
	var starts []time.Time
	var microseconds, counts []int64
	var derived []bool
	if err := row.Scan(&c.PodUID, &starts, &microseconds, &counts, &derived, &c.ReceivedAt); err != nil {
		return c, err
	}
	if len(microseconds) != len(starts) || len(counts) != len(starts) || len(derived) != len(starts) {
		return c, fmt.Errorf("the compacted time of pod %s has lists of different lengths; run an audit", c.PodUID)
	}
	c.ReceivedAt = c.ReceivedAt.UTC()
	for i, start := range starts {
		run := ledger.Run{Start: start.UTC(), Length: time.Duration(microseconds[i]) * time.Microsecond, Count: counts[i], Source: ledger.SourceAgent}
		if derived[i] {
			run.Source = ledger.SourceDerived
		}
		c.Runs = append(c.Runs, run)
	}
	return c, nil
}

func scanDevice(row pgx.CollectableRow) (h ledger.DeviceHold, err error) {
	err = row.Scan(&h.GPUUUID, &h.PodUID, &h.Start, &h.End)
	h.Start, h.End = h.Start.UTC(), h.End.UTC()
	return h, err
}

func scanDiscrepancy(row pgx.CollectableRow) (d ledger.Discrepancy, err error) {
	var resolvedAt *time.Time
	err = row.Scan(&d.Key, &d.Kind, &d.PodUID, &d.Account, &d.Ledger, &d.Other, &d.FoundAt, &resolvedAt, &d.Resolution, &d.ResolvedBy)
	d.FoundAt, d.ResolvedAt = d.FoundAt.UTC(), fromNullable(resolvedAt)
	return d, err
}

func scanEntry(row pgx.CollectableRow) (e ledger.Entry, err error) {
	err = row.Scan(&e.ID, &e.Kind, &e.Key, &e.Debit, &e.Credit, &e.Amount)
	return e, err
}

func scanRate(row pgx.CollectableRow) (r ledger.RateVersion, err error) {
	err = row.Scan(&r.Class, &r.Version, &r.Rate)
	return r, err
}

func scanRemembered(row pgx.CollectableRow) (r ledger.Remembered, err error) {
	var hash []byte
	var verdict string
	if err := row.Scan(&r.Key, &hash, &verdict); err != nil {
		return r, err
	}
	if copy(r.ContentHash[:], hash) != len(r.ContentHash) {
		return r, fmt.Errorf("command %q has a content hash of %d bytes", r.Key, len(hash))
	}
	if verdict == "" { // carried out, and nothing to say of it
		return r, nil
	}
	if err := json.Unmarshal([]byte(verdict), &r.Verdict); err != nil {
		return r, fmt.Errorf("read the verdict of command %q: %w", r.Key, err)
	}
	return r, nil
}

// writeVerdict writes what is remembered of a verdict: nothing for most, that were carried out.
func writeVerdict(v ledger.Verdict) (string, error) {
	text, err := json.Marshal(v)
	if string(text) == "{}" {
		return "", nil
	}
	return string(text), err
}

// readTakes and writeTakes keep most rows, which have none, short.
func readTakes(text string) (takes []ledger.Take, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &takes)
	}
	return takes, err
}

func writeTakes(takes []ledger.Take) string {
	if len(takes) == 0 {
		return ""
	}
	text, err := json.Marshal(takes)
	if err != nil {
		panic("postgres: takes cannot be written: " + err.Error()) // strings and numbers always can
	}
	return string(text)
}

func writePolicy(p ledger.Policy) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic("postgres: a policy cannot be written: " + err.Error()) // likewise
	}
	return string(text)
}

// policies remembers the policies that were read: a batch reads hundreds of accounts, whose policies are few and never edited.
var policies policyCache

type policyCache struct {
	mu     sync.Mutex
	byText map[string]ledger.Policy
}

// policyCacheSize bounds the memory of the cache; texts are some hundred bytes long.
const policyCacheSize = 4_096

func (c *policyCache) read(text string) (p ledger.Policy, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.byText[text]; ok {
		return p, nil
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("read an account's policy: %w", err)
	}
	if c.byText == nil || len(c.byText) >= policyCacheSize {
		c.byText = make(map[string]ledger.Policy)
	}
	c.byText[text] = p
	return p, nil
}

// column is one field of many rows: an array parameter of a set-based write.
func column[T, V any](rows []T, field func(*T) V) []V {
	values := make([]V, len(rows))
	for i := range rows {
		values[i] = field(&rows[i])
	}
	return values
}

// nullable maps the zero time to NULL.
func nullable(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func fromNullable(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
