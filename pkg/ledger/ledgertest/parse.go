package ledgertest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// ParseCommand reads one command of a scenario, e.g. "hold job team-a gpus=4 seconds=600". Options not given have the
// defaults of this package's builders; key= overrides the key.
//
//	account <name> [parent=] [overdraft=]      remove <account>
//	rate <credits per GPU-second> [class=]     grant <account> <credits>
//	hold <uid> <account> gpus= seconds=        close <uid> [Settled|Released|Expired]
//	allocate <pod> <uid> <account> gpus= [node=] [epoch=] [holdseconds=]
//	bound <pod> [node=]                        release <pod>
//	start <pod> <seconds>                      interval <pod> <from> <to> [start=] [gpus=a,b] [node=] [epoch=]
//	end <pod> <from>|never <to> [unknown=true] suspect <pod> <seconds>      clear <pod>
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
		c := Account(p.word(1), p.text("parent", ""), p.credits(p.text("overdraft", "0")))
		c.Key = p.text("key", c.Key)
		return c
	case "remove":
		return ledger.RemoveAccount{Key: p.text("key", "remove:"+p.word(1)), Account: p.word(1)}
	case "rate":
		c := ledger.SetRate{Class: p.text("class", Class), Rate: ledger.Rate(p.credits(p.word(1)))}
		c.Key = p.text("key", fmt.Sprintf("rate:%s:%d", c.Class, c.Rate))
		return c
	case "grant":
		c := Grant(p.word(1), p.word(1), 0)
		c.Amount = p.credits(p.word(2))
		c.Key = p.text("key", c.Key)
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

func (p *lineParser) allocate() ledger.Command {
	c := Allocate(p.word(1), p.word(2), p.word(3), p.number("gpus", 1))
	c.Node, c.LeaderEpoch = p.text("node", Node), p.number("epoch", 1)
	c.Key = p.text("key", c.Key)
	if seconds := p.number("holdseconds", 0); seconds > 0 {
		hold := Hold(c.Reservation, c.Account, c.GPUs, seconds)
		c.Hold = &hold
	}
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
