package simulation

import (
	"fmt"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// ownSettings takes charge of every so-manieth account: SetAccount says everything about an account, so two lanes that
// change one would only undo each other's changes.
func (g *laneGenerator) ownSettings() {
	g.settings = make(map[string]ledger.SetAccount)
	for i, name := range g.world.accounts() {
		if i%lanes == g.lane {
			g.settings[name] = g.world.settings[name]
		}
	}
}

// upkeep is what people do to accounts.
func (g *laneGenerator) upkeep() {
	g.pass(time.Second, 5*time.Minute)
	account := oneOf(g.Rand, g.world.accounts()...)
	switch n := g.IntN(100); {
	case n < 30:
		g.grant(account)
	case n < 50:
		g.say(ledger.Transfer{
			Key: g.name("transfer"), From: account, To: oneOf(g.Rand, g.world.accounts()...),
			Amount: credits(g.Rand, 1, 100_000), Reason: "lend",
		})
	case n < 60:
		g.adjust(account)
	case n < 66:
		g.freeze(account)
	case n < 82:
		g.change()
	case n < 86:
		class := oneOf(g.Rand, g.world.classes...)
		g.say(ledger.SetRate{Key: g.name("rate"), Class: class, Rate: randomRate(g.Rand)})
	case n < 92:
		g.say(ledger.PostDue{Key: "due", Account: account})
	default:
		g.passing()
	}
}

func (g *laneGenerator) grant(account string) {
	c := ledger.PostGrant{Key: g.name("grant"), Account: account, Amount: credits(g.Rand, 1, 400_000), Reason: "more", Actor: "somebody"}
	if chance(g.Rand, 500) {
		c.ExpiresAt = g.now.Add(between(g.Rand, -time.Hour, 72*time.Hour))
	}
	g.say(c)
}

func (g *laneGenerator) adjust(account string) {
	c := ledger.Adjust{Key: g.name("adjust"), Account: account, Amount: credits(g.Rand, 1, 30_000), Reason: "it was wrong", Actor: "somebody"}
	if chance(g.Rand, 400) {
		c.Amount = -c.Amount
	}
	if chance(g.Rand, 100) {
		c.Corrects = 1 << 40 // no such entry
	}
	if len(g.endings) > 0 && chance(g.Rand, 500) {
		c.Discrepancy = "end-unknown:" + oneOf(g.Rand, g.endings...)
		if c.Corrects == 0 && chance(g.Rand, 500) {
			c.Amount = 0
		}
	}
	g.say(c)
}

// freeze stops an account while the lane does something else.
func (g *laneGenerator) freeze(account string) {
	g.say(ledger.FreezeAccount{Key: g.name("freeze"), Account: account, Reason: "look at it"})
	if chance(g.Rand, 500) {
		g.grant(account)
	}
	g.pass(0, 5*time.Minute)
	g.say(ledger.UnfreezeAccount{Key: g.name("unfreeze"), Account: account, Reason: "looked at it", Actor: "somebody"})
}

// change gives one of the lane's accounts another policy, another parent, or both.
func (g *laneGenerator) change() {
	for _, name := range g.world.accounts() {
		c, own := g.settings[name]
		if !own {
			continue
		}
		isRoot, isDepartment := c.Parent == "", !g.isTeam(name)
		c.Key = g.name("account")
		if chance(g.Rand, 500) {
			c.Policy = randomPolicy(g.Rand, !isRoot && !isDepartment)
		}
		switch {
		case chance(g.Rand, 30): // below itself: refused
			c.Parent = oneOf(g.Rand, g.world.teams...)
		case isRoot:
		case isDepartment:
			c.Parent = oneOf(g.Rand, g.world.roots...)
		case chance(g.Rand, 600):
			c.Parent = oneOf(g.Rand, g.world.departments...)
		}
		if g.isTeam(c.Parent) && !isRoot {
			c.Parent = g.settings[name].Parent // teams stay leaves: only a cycle is tried, never a deeper tree
		}
		if !g.isTeam(c.Parent) {
			g.settings[name] = c
		}
		g.say(c)
		return
	}
	g.grant(oneOf(g.Rand, g.world.accounts()...)) // it has no account of its own
}

func (g *laneGenerator) isTeam(name string) bool { return len(name) > 5 && name[:5] == "team-" }

// passing creates an account and removes it again, mostly in vain: what has a history stays. Some have nothing but an
// overdraft, which a child uses.
func (g *laneGenerator) passing() {
	name := fmt.Sprintf("passing-%d-%d", g.lane, g.count)
	create := ledger.SetAccount{Key: g.name("create"), Account: name, Parent: oneOf(g.Rand, g.world.departments...)}
	create.Policy.OverdraftLimit = 1_000_000 * ledger.Credit
	g.say(create)
	child := ledger.SetAccount{Key: g.name("create"), Account: name + "-child", Parent: name}
	child.Policy.Funding = ledger.FundingAncestor
	uid := g.name("w")
	switch g.IntN(4) {
	case 0:
		g.grant(name)
	case 1, 2:
		g.say(child)
		g.say(ledger.PlaceHold{
			Key: "hold:" + uid, UID: uid, Account: child.Account, Workload: ledger.WorkloadRef{Kind: "Job", Namespace: "n", Name: uid},
			Class: g.world.classes[0], MaxGPUs: 1, GPUSeconds: 60,
		})
		child.Key, child.Parent = g.name("move"), create.Parent
		g.say(child)
	}
	g.pass(0, time.Minute)
	g.say(ledger.RemoveAccount{Key: g.name("remove"), Account: name})
	if chance(g.Rand, 500) {
		g.say(ledger.CloseReservation{Key: "close:" + uid, UID: uid, Outcome: ledger.Released})
	}
}
