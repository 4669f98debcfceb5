package slow

import "github.com/gpubank/gpubank/pkg/ledger"

// allocateGang gives up what the members were intended for, places them one after the other without asking any limit, and looks at
// what came of it. If there is anything wrong with that, none of it happened.
func (l *Ledger) allocateGang(c ledger.AllocateGang) ledger.Verdict {
	before := l.books.copy()
	no := func(verdict ledger.Verdict) ledger.Verdict {
		l.books = before
		return verdict
	}
	for _, member := range c.Members {
		if a := l.attempt(member.PodUID); a != nil && a.State == ledger.AllocationIntended {
			a.State = ledger.AllocationReleased
		}
	}
	if verdict := l.firstTrouble(c); verdict != nil {
		return no(*verdict)
	}
	placed := 0
	for _, member := range c.Members {
		verdict := l.place(member, false)
		if verdict.Refusal != nil {
			return no(verdict)
		}
		if !verdict.Replayed {
			placed++
		}
	}
	account := c.Members[0].Account
	sum, brought, begun := new(total), 0, int64(0)
	for i, h := range l.holds {
		if i >= len(before.holds) {
			sum.add(h.Amount)
			brought++
		}
		if h.State == ledger.Active && (i >= len(before.holds) || before.holds[i].State == ledger.Held) {
			begun++
		}
	}
	if !sum.fits() {
		return no(refused(ledger.OutOfRange))
	}
	after := l.books
	l.books = before.copy()
	if brought > 0 {
		if refusal := l.limits(l.payer(account), account, sum.amount()); refusal != nil {
			return *refusal
		}
	}
	if begun > 0 {
		for _, name := range l.above(account) {
			if most := l.account(name).policy.RunningJobs; most > 0 && l.subtreeRunning(name)+begun > most {
				return ledger.Verdict{Refusal: &ledger.Refusal{Code: ledger.RunningLimited, Account: name}}
			}
		}
	}
	if !l.try(func() { l.books = after }) {
		return refused(ledger.OutOfRange)
	}
	return ledger.Verdict{Replayed: placed == 0}
}

// firstTrouble is what stands in a member's way whatever the others ask for, in the members' order.
func (l *Ledger) firstTrouble(c ledger.AllocateGang) *ledger.Verdict {
	trial := &Ledger{books: l.books.copy(), now: l.now, leaders: l.leaders, nodes: l.nodes}
	for _, member := range c.Members {
		if member.Hold != nil { // how many GPUs each covers is the others' matter
			hold := *member.Hold
			hold.MaxGPUs, member.Hold = ledger.MaxGPUs*ledger.MaxGangMembers, &hold
		}
		if verdict := trial.place(member, false); verdict.Refusal != nil && verdict.Refusal.Code != ledger.HoldExceeded {
			return &verdict
		}
	}
	return nil
}
