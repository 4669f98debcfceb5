package ledgertest

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// ParseCommand reads one command of a scenario, e.g. "hold job team-a gpus=4 seconds=600". Options not given have the
// defaults of this package's builders; key= overrides the key.
//
//	account <name> [parent=] [overdraft=] [policy options]      remove <account>
//	rate <credits per GPU-second> [class=]     grant <account> <credits> [expires=<seconds>]
//	adjust <account> <credits> [corrects=<entry>] [discrepancy=]   transfer <from> <to> <credits>
//	freeze <account>                           unfreeze <account>      due <account>
//	hold <uid> <account> gpus= seconds=        renew <uid> seconds=
//	close <uid> [Settled|Released|Expired]
//	allocate <pod> <uid> <account> gpus= [node=] [epoch=] [holdseconds=] [running=true]
//	gang <pod> <uid> <account> [<pod> <uid> <account>]... gpus= [node=] [epoch=] [holdseconds=]
//	bound <pod> [node=]                        release <pod>
//	start <pod> <seconds>                      interval <pod> <from> <to> [start=] [gpus=a,b] [node=] [epoch=]
//	end <pod> <from>|never <to> [unknown=true] suspect <pod> <seconds>      clear <pod>
//	refund <pod> Failed|Preempted|DeviceFault [checkpoint=<seconds>]
//
// Policy options: funding=Ancestor, spending=<credits>/<period>, jobs=<most at once>, refill=<credits>/<seconds>/<cap>,
// failed=<percent>, preempted=<percent>, checkpoint=true, fault=true, overrun=<action>.
func ParseCommand(line string) (ledger.Command, error) {
	p := &lineParser{line: line, options: make(map[string]string)}
	for _, word := range strings.Fields(line) {
		if name, value, isOption := strings.Cut(word, "="); isOption {
			p.options[name] = value
		} else {
			p.words = append(p.words, word)
		}
	}
	command := p.command()
	if p.err == nil && len(p.options) > 0 {
		p.fail("unknown options %v", p.options)
	}
	return command, p.err
}

type lineParser struct {
	line    string
	words   []string
	options map[string]string
	err     error
}

func (p *lineParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("scenario line %q: %s", p.line, fmt.Sprintf(format, args...))
	}
}

func (p *lineParser) word(index int) string {
	if index >= len(p.words) {
		p.fail("word %d is missing", index)
		return ""
	}
	return p.words[index]
}

func (p *lineParser) seconds(index int) float64 {
	value, err := strconv.ParseFloat(p.word(index), 64)
	if err != nil {
		p.fail("%v", err)
	}
	return value
}

func (p *lineParser) text(option, otherwise string) string {
	if value, ok := p.options[option]; ok {
		delete(p.options, option)
		return value
	}
	return otherwise
}

func (p *lineParser) number(option string, otherwise int64) int64 {
	value, err := strconv.ParseInt(p.text(option, strconv.FormatInt(otherwise, 10)), 10, 64)
	if err != nil {
		p.fail("%v", err)
	}
	return value
}

func (p *lineParser) credits(text string) ledger.Microcredits {
	amount, err := ledger.ParseCredits(text)
	if err != nil {
		p.fail("%v", err)
	}
	return amount
}

func (p *lineParser) command() ledger.Command {
	switch p.word(0) {
	case "account":
		return p.account()
	case "remove":
		return ledger.RemoveAccount{Key: p.text("key", "remove:"+p.word(1)), Account: p.word(1)}
	case "rate":
		c := ledger.SetRate{Class: p.text("class", Class), Rate: ledger.Rate(p.credits(p.word(1)))}
		c.Key = p.text("key", fmt.Sprintf("rate:%s:%d", c.Class, c.Rate))
		return c
	case "grant":
		c := Grant(p.word(1), p.word(1), 0)
		c.Amount, c.ExpiresAt = p.credits(p.word(2)), p.moment("expires")
		c.Key = p.text("key", c.Key)
		return c
	case "adjust", "transfer", "freeze", "unfreeze", "due":
		return p.correction()
	case "renew":
		c := ledger.RenewHold{UID: p.word(1), GPUSeconds: p.number("seconds", 1)}
		c.Key = p.text("key", fmt.Sprintf("renew:%s:%d", c.UID, c.GPUSeconds))
		return c
	case "ensure":
		c := ledger.EnsureHold{Hold: Hold(p.word(1), p.word(2), p.number("gpus", 1), p.number("seconds", 1)), From: p.number("from", 0)}
		c.Hold.Class = p.text("class", Class)
		c.Hold.Key = ""
		c.Key = p.text("key", fmt.Sprintf("ensure:%s:%d:%d", c.Hold.UID, c.From, c.Hold.GPUSeconds))
		return c
	case "pause":
		c := ledger.PauseHold{UID: p.word(1), From: p.number("from", 0)}
		c.Key = p.text("key", fmt.Sprintf("pause:%s:%d", c.UID, c.From))
		return c
	case "refund":
		c := ledger.Refund{PodUID: p.word(1), Cause: ledger.RefundCause(p.word(2)), CheckpointedAt: p.moment("checkpoint"), Reason: "test"}
		c.Key = p.text("key", "refund:"+c.PodUID)
		return c
	case "hold":
		c := Hold(p.word(1), p.word(2), p.number("gpus", 1), p.number("seconds", 1))
		c.Class = p.text("class", Class)
		c.Key = p.text("key", c.Key)
		return c
	case "close":
		c := Close(p.word(1))
		if len(p.words) > 2 {
			c.Outcome = ledger.ReservationState(p.word(2))
		}
		c.Key = p.text("key", c.Key)
		return c
	case "allocate":
		return p.allocate()
	case "gang":
		return p.gang()
	case "bound":
		c := ledger.ConfirmBound{PodUID: p.word(1), Node: p.text("node", Node)}
		c.Key = p.text("key", "bound:"+c.PodUID+":"+c.Node)
		return c
	case "release":
		return ledger.ReleaseAllocation{Key: p.text("key", "release:"+p.word(1)), PodUID: p.word(1), Reason: "test"}
	case "start":
		return ledger.RecordStart{Key: p.text("key", "start:"+p.word(1)), PodUID: p.word(1), StartedAt: At(p.seconds(2))}
	case "interval":
		return p.interval()
	case "end":
		return p.end()
	case "suspect":
		return ledger.MarkSuspect{Key: p.text("key", "suspect:"+p.word(1)), PodUID: p.word(1), LastSeen: At(p.seconds(2))}
	case "clear":
		return ledger.ClearSuspect{Key: p.text("key", "clear:"+p.word(1)), PodUID: p.word(1)}
	}
	p.fail("unknown command")
	return nil
}

// account has a key that tells one policy from another.
func (p *lineParser) account() ledger.Command {
	c := Account(p.word(1), p.text("parent", ""), p.credits(p.text("overdraft", "0")))
	c.Policy.Funding = ledger.Funding(p.text("funding", ""))
	if spending := p.text("spending", ""); spending != "" {
		parts := p.parts(spending, 2)
		c.Policy.Spending = ledger.SpendingLimit{Amount: p.credits(parts[0]), Period: ledger.Period(parts[1])}
	}
	c.Policy.RunningJobs = p.number("jobs", 0)
	if refill := p.text("refill", ""); refill != "" {
		parts := p.parts(refill, 3)
		seconds, err := strconv.ParseInt(parts[1], 10, 64)
		if err != nil {
			p.fail("%v", err)
		}
		c.Policy.Refill = ledger.Refill{Amount: p.credits(parts[0]), PeriodSeconds: seconds, Cap: p.credits(parts[2])}
	}
	c.Policy.Refunds = ledger.RefundPolicy{
		FailedPercent: p.number("failed", 0), PreemptedPercent: p.number("preempted", 0),
		PreemptedSinceCheckpoint: p.text("checkpoint", "") == "true", DeviceFault: p.text("fault", "") == "true",
	}
	c.Policy.Overrun.Action = ledger.OverrunAction(p.text("overrun", ""))
	c.Key = p.text("key", p.line)
	return c
}

func (p *lineParser) parts(text string, count int) []string {
	parts := strings.Split(text, "/")
	if len(parts) != count {
		p.fail("%q: want %d parts", text, count)
		return make([]string, count)
	}
	return parts
}

// moment is an option in seconds after Start; the zero time if it is not given.
func (p *lineParser) moment(option string) time.Time {
	text := p.text(option, "")
	if text == "" {
		return time.Time{}
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		p.fail("%v", err)
	}
	return At(seconds)
}

// correction is what people move or stop by hand.
func (p *lineParser) correction() ledger.Command {
	account, key := p.word(1), p.text("key", p.line)
	switch p.word(0) {
	case "adjust":
		return ledger.Adjust{
			Key: key, Account: account, Amount: p.credits(p.word(2)), Corrects: p.number("corrects", 0),
			Discrepancy: p.text("discrepancy", ""), Reason: "was wrong", Actor: "ledgertest",
		}
	case "transfer":
		return ledger.Transfer{Key: key, From: account, To: p.word(2), Amount: p.credits(p.word(3)), Reason: "test", Actor: "ledgertest"}
	case "freeze":
		return ledger.FreezeAccount{Key: key, Account: account, Reason: "audit"}
	case "unfreeze":
		return ledger.UnfreezeAccount{Key: key, Account: account, Reason: "audited", Actor: "ledgertest"}
	}
	return ledger.PostDue{Key: key, Account: account}
}

func (p *lineParser) allocate() ledger.Command {
	c := Allocate(p.word(1), p.word(2), p.word(3), p.number("gpus", 1))
	c.Class = p.text("class", c.Class)
	c.Node, c.LeaderEpoch = p.text("node", Node), p.number("epoch", 1)
	c.AlreadyRunning = p.text("running", "") == "true"
	c.Key = p.text("key", c.Key)
	if seconds := p.number("holdseconds", 0); seconds > 0 {
		hold := Hold(c.Reservation, c.Account, c.GPUs, seconds)
		c.Hold = &hold
	}
	return c
}

// gang is one allocate for every three words, all with the same options.
func (p *lineParser) gang() ledger.Command {
	words, options := p.words[1:], p.options
	key := p.text("key", p.line)
	c := ledger.AllocateGang{Key: key}
	for ; len(words) > 0; words = words[min(3, len(words)):] {
		one := lineParser{line: p.line, words: append([]string{"allocate"}, words[:min(3, len(words))]...), options: maps.Clone(options)}
		member, _ := one.allocate().(ledger.Allocate)
		if one.err != nil || len(one.options) > 0 {
			p.fail("%v %v", one.err, one.options)
			return nil
		}
		c.Members = append(c.Members, member)
	}
	p.options = nil
	return c
}

func (p *lineParser) interval() ledger.Command {
	start, err := strconv.ParseFloat(p.text("start", "0"), 64)
	if err != nil {
		p.fail("%v", err)
	}
	var gpus []string
	if list := p.text("gpus", ""); list != "" {
		gpus = strings.Split(list, ",")
	}
	c := Interval(p.word(1), start, p.seconds(2), p.seconds(3), gpus...)
	c.Node, c.OwnerEpoch = p.text("node", Node), p.number("epoch", 1)
	c.Key = p.text("key", c.Key)
	return c
}

func (p *lineParser) end() ledger.Command {
	c := ledger.EndAllocation{PodUID: p.word(1), Reason: "Succeeded", EndUnknown: p.text("unknown", "") == "true"}
	if p.word(2) != "never" {
		c.StartedAt = At(p.seconds(2))
	}
	if len(p.words) > 3 {
		c.EndedAt = At(p.seconds(3))
	}
	c.Key = p.text("key", "end:"+c.PodUID)
	return c
}
