package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// world is the account tree and the prices as they are at first: two organisations, departments, teams.
type world struct {
	*rand.Rand
	seed        uint64
	classes     []string
	roots       []string
	departments []string
	teams       []string
	settings    map[string]ledger.SetAccount // by account, as set up
}

func newWorld(r *rand.Rand, seed uint64) *world {
	w := &world{Rand: r, seed: seed, settings: make(map[string]ledger.SetAccount)}
	for i := range 3 {
		w.classes = append(w.classes, fmt.Sprintf("class-%d", i))
	}
	for i := range 2 {
		w.roots = append(w.roots, w.add(fmt.Sprintf("org-%d", i), "", ledger.Policy{
			OverdraftLimit: 1_000_000 * ledger.Credit, RunningJobs: oneOf[int64](r, 0, 0, 80),
			Spending: w.spending(20_000_000, 400_000_000),
		}))
	}
	for i := range between(r, 6, 9) {
		name := w.add(fmt.Sprintf("department-%d", i), oneOf(r, w.roots...), w.policy(false))
		w.departments = append(w.departments, name)
	}
	for i := range between(r, 24, 48) {
		name := w.add(fmt.Sprintf("team-%d", i), oneOf(r, w.departments...), w.policy(true))
		w.teams = append(w.teams, name)
	}
	return w
}

func (w *world) add(name, parent string, policy ledger.Policy) string {
	w.settings[name] = ledger.SetAccount{Key: "setup:" + name, Account: name, Parent: parent, Policy: policy}
	return name
}

// accounts lists them parents first.
func (w *world) accounts() []string {
	all := append([]string(nil), w.roots...)
	return append(append(all, w.departments...), w.teams...)
}

// setup creates everything and gives most accounts enough and a few next to nothing.
func (w *world) setup() []ledger.Command {
	var commands []ledger.Command
	for _, class := range w.classes {
		commands = append(commands, ledger.SetRate{Key: "setup:" + class, Class: class, Rate: w.rate()})
	}
	for _, name := range w.accounts() {
		commands = append(commands, w.settings[name])
		grant := ledger.PostGrant{Key: "setup:grant:" + name, Account: name, Amount: credits(w.Rand, 500_000, 20_000_000), Reason: "budget"}
		if chance(w.Rand, 150) {
			grant.Amount = credits(w.Rand, 1, 20_000)
		}
		commands = append(commands, grant)
		for i := range w.IntN(4) {
			commands = append(commands, ledger.PostGrant{
				Key: fmt.Sprintf("setup:lot:%s:%d", name, i), Account: name, Amount: credits(w.Rand, 1_000, 500_000),
				ExpiresAt: start.Add(time.Duration(between(w.Rand, 1, 96)) * time.Hour), Reason: "use it or lose it",
			})
		}
	}
	return commands
}

// rate is 0.1 to 5 credits per GPU-second, to the microcredit.
func (w *world) rate() ledger.Rate { return randomRate(w.Rand) }

func randomRate(r *rand.Rand) ledger.Rate { return ledger.Rate(between[int64](r, 100_000, 5_000_000)) }

func (w *world) policy(team bool) ledger.Policy { return randomPolicy(w.Rand, team) }

func (w *world) spending(least, most int64) ledger.SpendingLimit {
	return randomSpending(w.Rand, least, most)
}

func randomSpending(r *rand.Rand, least, most int64) ledger.SpendingLimit {
	return ledger.SpendingLimit{Amount: credits(r, least, most), Period: oneOf(r, ledger.Periods...)}
}

// randomPolicy draws each rule by itself; a team may live on what is above it.
func randomPolicy(r *rand.Rand, team bool) ledger.Policy {
	var p ledger.Policy
	if chance(r, 400) {
		p.OverdraftLimit = credits(r, 0, 200_000)
	}
	if team && chance(r, 350) {
		p.Funding = ledger.FundingAncestor
	}
	// Most limits are wide, or little would ever run.
	if chance(r, 400) {
		p.Spending = randomSpending(r, 5_000_000, 100_000_000)
	}
	if chance(r, 250) {
		p.RunningJobs = between[int64](r, 24, 80)
	}
	if team && chance(r, 30) {
		p.Spending, p.RunningJobs = randomSpending(r, 10_000, 500_000), oneOf[int64](r, 0, 1)
	}
	if chance(r, 350) {
		amount := credits(r, 1_000, 40_000)
		p.Refill = ledger.Refill{
			Amount: amount, PeriodSeconds: oneOf[int64](r, 600, 3_600, 7_000, 21_600, 86_400),
			Cap: amount * ledger.Microcredits(between(r, 1, 300)),
		}
	}
	p.Refunds = ledger.RefundPolicy{
		FailedPercent: between[int64](r, 0, 100), PreemptedPercent: between[int64](r, 0, 100),
		PreemptedSinceCheckpoint: chance(r, 500), DeviceFault: chance(r, 500),
	}
	if chance(r, 300) {
		p.Overrun = ledger.Overrun{Action: ledger.OverrunRenew, StepSeconds: 600}
	}
	return p
}
