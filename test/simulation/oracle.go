package simulation

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// check compares what the database says with what was answered, and lets the ledger look at itself.
func (r *run) check(ctx context.Context, report *Report) error {
	store, err := r.peace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	found, err := store.Audit(ctx)
	if err != nil {
		return err
	}
	for _, v := range found {
		r.book.violate("audit: %s", v)
	}
	changed, err := store.Rebuild(ctx)
	if err != nil {
		return err
	}
	if changed != 0 {
		r.book.violate("I2: the rebuild changed %d accounts", changed)
	}
	rows, err := readRows(ctx, r.url)
	if err != nil {
		return err
	}
	report.Entries, report.Reservations, report.Allocations = len(rows.entries), len(rows.reservations), len(rows.allocations)
	o := &oracle{book: r.book, rows: rows, expected: make(map[string]ledger.Microcredits), system: make(map[string]ledger.Microcredits)}
	o.money()
	o.lots()
	o.balances()
	o.rates()
	o.holds()
	for _, pod := range r.plan.Pods {
		o.pod(pod)
	}
	o.strangers()
	return nil
}

// oracle knows the answers, and what follows from them.
type oracle struct {
	book *book
	rows rows
	// expected is each account's balance by the answers, and by the entries that nobody asks for (refills, expiries).
	expected map[string]ledger.Microcredits
	// system is what the accounts on the other side have by the entries.
	system map[string]ledger.Microcredits
	// prices are the rates by class and version.
	prices map[string]map[int64]ledger.Rate
}

// money goes through all entries: each is what exactly one accepted command says, and each accepted command has its
// entry.
func (o *oracle) money() {
	wanted := make(map[string]ledger.Microcredits)  // by kind and key
	paid := make(map[string][2]ledger.Microcredits) // charged and refunded by the answers, by pod
	for _, rec := range o.book.records {
		if !rec.accepted() {
			continue
		}
		switch c := rec.command.(type) {
		case ledger.PostGrant:
			o.want(wanted, ledger.EntryGrant, c.Key, c.Amount)
			o.expected[c.Account] += c.Amount
		case ledger.Adjust:
			if c.Amount != 0 {
				o.want(wanted, ledger.EntryAdjustment, c.Key, max(c.Amount, -c.Amount))
			}
			o.expected[c.Account] += c.Amount
		case ledger.Transfer:
			o.want(wanted, ledger.EntryTransfer, c.Key, c.Amount)
			o.expected[c.From] -= c.Amount
			o.expected[c.To] += c.Amount
		case ledger.Refund:
			if rec.final.Refunded != 0 {
				o.want(wanted, ledger.EntryRefund, "refund:"+c.PodUID, rec.final.Refunded)
			}
			paid[c.PodUID] = [2]ledger.Microcredits{paid[c.PodUID][0], paid[c.PodUID][1] + rec.final.Refunded}
		case ledger.RecordInterval:
			paid[c.PodUID] = [2]ledger.Microcredits{paid[c.PodUID][0] + rec.final.Charged, paid[c.PodUID][1]}
		case ledger.EndAllocation:
			paid[c.PodUID] = [2]ledger.Microcredits{paid[c.PodUID][0] + rec.final.Charged, paid[c.PodUID][1]}
		}
	}
	for pod, sums := range paid {
		a := o.rows.allocations[pod]
		if a.Charged != sums[0] || a.Refunded != sums[1] {
			o.book.violate("pod %s: answers say %d charged and %d refunded, its row %d and %d", pod, sums[0], sums[1], a.Charged, a.Refunded)
		}
		o.expected[o.rows.reservations[a.Reservation].Payer] += sums[1] - sums[0]
	}
	o.entries(wanted)
}

func (o *oracle) want(wanted map[string]ledger.Microcredits, kind ledger.EntryKind, key string, amount ledger.Microcredits) {
	name := string(kind) + " " + key
	if _, twice := wanted[name]; twice {
		o.book.violate("I6: %s was accepted with two contents", name)
	}
	wanted[name] = amount
}

func (o *oracle) entries(wanted map[string]ledger.Microcredits) {
	last := make(map[string]time.Time)
	charged := make(map[string]ledger.Microcredits)
	for _, e := range o.rows.entries {
		for _, side := range []struct {
			name   string
			amount ledger.Microcredits
		}{{e.Debit, -e.Amount}, {e.Credit, e.Amount}} {
			if strings.HasPrefix(side.name, "system:") {
				o.system[side.name] += side.amount
				continue
			}
			if e.RecordedAt.Before(last[side.name]) {
				o.book.violate("entry %d of account %s is recorded at %s, the one before it at %s", e.ID, side.name, e.RecordedAt, last[side.name])
			}
			last[side.name] = e.RecordedAt
		}
		name := string(e.Kind) + " " + e.Key
		switch e.Kind {
		case ledger.EntryCharge:
			charged[e.Pod] += e.Amount
		case ledger.EntryRefill:
			o.expected[e.Credit] += e.Amount
		case ledger.EntryExpiry:
			o.expected[e.Debit] -= e.Amount
			if e.RecordedAt.Before(e.OccurredAt) {
				o.book.violate("entry %s took a lot at %s that expired at %s", name, e.RecordedAt, e.OccurredAt)
			}
		default:
			amount, asked := wanted[name]
			delete(wanted, name)
			if !asked || amount != e.Amount {
				o.book.violate("entry %s moves %d, and the answers say %d (asked: %v)", name, e.Amount, amount, asked)
			}
		}
	}
	for name, amount := range wanted {
		o.book.violate("%s of %d was accepted, and there is no such entry", name, amount)
	}
	for pod, sum := range charged {
		if row := o.rows.allocations[pod]; row.Charged != sum {
			o.book.violate("pod %s: entries charge %d, its row says %d", pod, sum, row.Charged)
		}
	}
}

// lots expire once, and never more than they were.
func (o *oracle) lots() {
	expired := make(map[string]ledger.Microcredits)
	for _, e := range o.rows.entries {
		if e.Kind == ledger.EntryExpiry {
			key := strings.TrimPrefix(e.Key, "expiry:")
			expired[key[:strings.LastIndex(key, ":")]] += e.Amount
		}
	}
	for key, lot := range o.rows.lots {
		if lot.Expired != expired[key] || lot.Free < 0 || lot.Held != 0 || lot.Free+lot.Expired > lot.Amount {
			o.book.violate("lot %+v: entries say that %d expired, and no hold is open", lot, expired[key])
		}
		delete(expired, key)
	}
	for key, amount := range expired {
		o.book.violate("%d expired of lot %s, which does not exist", amount, key)
	}
}

// balances is conservation: what was answered adds up to what each account has, and all accounts together to nothing.
func (o *oracle) balances() {
	var sum ledger.Microcredits
	for name, row := range o.rows.accounts {
		if row.Balance != o.expected[name] {
			o.book.violate("account %s has %d, the answers add up to %d", name, row.Balance, o.expected[name])
		}
		if row.Reserved != 0 || row.Held != 0 || row.Running != 0 {
			o.book.violate("account %s reserves %d, holds %d and runs %d, and everything is over", name, row.Reserved, row.Held, row.Running)
		}
		sum += row.Balance
		delete(o.expected, name)
	}
	for name, amount := range o.expected {
		if amount != 0 {
			o.book.violate("account %q should have %d and does not exist", name, amount)
		}
	}
	for _, amount := range o.system {
		sum += amount
	}
	if sum != 0 {
		o.book.violate("I10: all accounts add up to %d: %v", sum, o.system)
	}
}

// rates collects the prices that were answered.
func (o *oracle) rates() {
	o.prices = make(map[string]map[int64]ledger.Rate)
	for _, rec := range o.book.records {
		c, ok := rec.command.(ledger.SetRate)
		if !ok || !rec.accepted() {
			continue
		}
		if o.prices[c.Class] == nil {
			o.prices[c.Class] = make(map[int64]ledger.Rate)
		}
		version := rec.final.RateVersion
		if earlier, known := o.prices[c.Class][version]; known && earlier != c.Rate {
			o.book.violate("version %d of class %s is %d and %d", version, c.Class, earlier, c.Rate)
		}
		o.prices[c.Class][version] = c.Rate
	}
}

// holds are as long as what was accepted, at the price of their version, and paid by whom the answers named.
func (o *oracle) holds() {
	seconds, explained := make(map[string]int64), make(map[string]bool)
	for _, rec := range o.book.records {
		if c, ok := rec.command.(ledger.RenewHold); ok && rec.accepted() {
			seconds[c.UID] += c.GPUSeconds
		}
		_, gang := rec.command.(ledger.AllocateGang) // its answer names no payer
		for _, hold := range holdsOf(rec.command) {
			row, exists := o.rows.reservations[hold.UID]
			if rec.accepted() && (!exists || row.Account != hold.Account || !gang && row.Payer != rec.payer) {
				o.book.violate("the hold of %s was accepted for %s paid by %s, and is %+v", hold.UID, hold.Account, rec.payer, row)
			}
			if (rec.accepted() || rec.unknown()) && exists && !explained[hold.UID] {
				explained[hold.UID] = true
				seconds[hold.UID] += hold.GPUSeconds
			}
		}
	}
	for uid, row := range o.rows.reservations {
		rate := o.prices[row.Class][row.RateVersion]
		switch {
		case !explained[uid]:
			o.book.violate("workload %s has a hold that nobody was told of: %+v", uid, row)
		case row.GPUSeconds != seconds[uid]:
			o.book.violate("the hold of %s is for %d GPU-seconds, the answers say %d", uid, row.GPUSeconds, seconds[uid])
		case row.Rate != rate || row.Amount != ledger.Microcredits(int64(rate)*row.GPUSeconds):
			o.book.violate("the hold of %s is %+v, and its rate is %d", uid, row, rate)
		}
	}
}

// pod is I4 and I9: an attempt is charged its whole price, once.
func (o *oracle) pod(pod Pod) {
	row, exists := o.rows.allocations[pod.UID]
	if !exists {
		return // never placed; strangers looks that nobody was told otherwise
	}
	if row.State != string(ledger.AllocationEnded) && row.State != string(ledger.AllocationReleased) {
		o.book.violate("I5: pod %s was ended and is %s", pod.UID, row.State)
		return
	}
	if row.StartedAt == nil || row.EndedAt == nil {
		if row.Charged != 0 {
			o.book.violate("I4: pod %s held nothing and was charged %d", pod.UID, row.Charged)
		}
		return
	}
	if pod.Odd {
		return
	}
	if !row.StartedAt.Equal(pod.Start) || row.EndedAt.Before(pod.End) {
		o.book.violate("pod %s ran from %s to %s, its row says %s to %s", pod.UID, pod.Start, pod.End, *row.StartedAt, *row.EndedAt)
	}
	rate := o.prices[pod.Class][row.RateVersion]
	price := big.NewInt(row.EndedAt.Sub(pod.Start).Microseconds())
	price.Mul(price, big.NewInt(int64(rate)))
	price.Mul(price, big.NewInt(pod.GPUs))
	price.Div(price, big.NewInt(1_000_000))
	if price.Int64() != int64(row.Charged) {
		o.book.violate("I4: pod %s ran %d GPUs from %s to %s at %d, which costs %d; it was charged %d",
			pod.UID, pod.GPUs, pod.Start, *row.EndedAt, rate, price, row.Charged)
	}
}

// strangers are allocations that nobody was told of, and those that somebody was told of and that are not there.
func (o *oracle) strangers() {
	explained := make(map[string]bool)
	for _, rec := range o.book.records {
		for _, c := range placements(rec.command) {
			row, exists := o.rows.allocations[c.PodUID]
			if rec.accepted() && (!exists || row.Reservation != c.Reservation) {
				o.book.violate("pod %s was placed under %s, and its row is %+v", c.PodUID, c.Reservation, row)
			}
			explained[c.PodUID] = explained[c.PodUID] || rec.accepted() || rec.unknown()
		}
	}
	for pod, row := range o.rows.allocations {
		if !explained[pod] {
			o.book.violate("pod %s has an allocation that nobody was told of: %+v", pod, row)
		}
	}
}

// Reproduce is the command that repeats a run's plan.
func (p *Plan) Reproduce() string {
	return fmt.Sprintf("go test ./test/simulation -run TestSimulation -seed %d -commands %d", p.Seed, p.Commands)
}
