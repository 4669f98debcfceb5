package ledgertest

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Ledger is what scenarios run against: the pure Decide over a state in memory, or a whole database.
type Ledger interface {
	// Do decides commands as one batch at a moment.
	Do(t *testing.T, now time.Time, commands []ledger.Command) []ledger.Verdict
	// SetEpoch makes an epoch of the leader or of a node's agent the current one.
	SetEpoch(t *testing.T, kind, name string, epoch int64)
	Account(t *testing.T, name string) *ledger.Account
	Reservation(t *testing.T, uid string) *ledger.Reservation
	Allocation(t *testing.T, podUID string) *ledger.Allocation
	Intervals(t *testing.T, podUID string) []ledger.Interval
	Discrepancies(t *testing.T) []ledger.Discrepancy
	// LotsOf are an account's lots, EntriesOf the entries that name it, in order.
	LotsOf(t *testing.T, account string) []ledger.Lot
	EntriesOf(t *testing.T, account string) []ledger.Entry
}

// RunScenarios runs every file in dir against a ledger of its own. A file is a list of
//
//	do [now=<seconds>]     one batch: a command per line (see ParseCommand); prints a verdict per line
//	epoch leader|agent <name> <epoch>
//	show                   a row per line: account <name>, limits <account>, lots <account>, entries <account>,
//	                       reservation <uid>, allocation <pod>, intervals <pod>, discrepancies
//
// Times are seconds after Start, amounts are credits.
func RunScenarios(t *testing.T, dir string, open func(t *testing.T) Ledger) {
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		l, now := open(t), At(86_400)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "epoch":
				var epoch int64
				fmt.Sscan(d.CmdArgs[2].Key, &epoch)
				l.SetEpoch(t, d.CmdArgs[0].Key, d.CmdArgs[1].Key, epoch)
				return ""
			case "do":
				for _, arg := range d.CmdArgs {
					if arg.Key == "now" {
						seconds, err := strconv.ParseFloat(arg.Vals[0], 64)
						if err != nil {
							d.Fatalf(t, "now: %v", err)
						}
						now = At(seconds)
					}
				}
				return runBatch(t, d, l, now)
			case "show":
				var out strings.Builder
				for line := range strings.Lines(d.Input) {
					show(t, &out, l, strings.Fields(line))
				}
				return out.String()
			}
			d.Fatalf(t, "unknown directive %s", d.Cmd)
			return ""
		})
	})
}

func runBatch(t *testing.T, d *datadriven.TestData, l Ledger, now time.Time) string {
	var commands []ledger.Command
	for line := range strings.Lines(d.Input) {
		command, err := ParseCommand(strings.TrimSpace(line))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		commands = append(commands, command)
	}
	var out strings.Builder
	for _, v := range l.Do(t, now, commands) {
		out.WriteString(describeVerdict(v) + "\n")
	}
	return out.String()
}

func describeVerdict(v ledger.Verdict) string {
	if v.Refusal != nil {
		text := v.Refusal.Error()
		if v.Replayed {
			text += " (repeat)"
		}
		return text
	}
	text := "ok"
	if v.Replayed {
		text += " (repeat)"
	}
	if v.Charged != 0 {
		text += " charged=" + ledger.FormatCredits(v.Charged)
	}
	if v.Refunded != 0 {
		text += " refunded=" + ledger.FormatCredits(v.Refunded)
	}
	if v.Reservation != nil {
		text += fmt.Sprintf(" reservation=%s/%s", v.Reservation.UID, v.Reservation.State)
	}
	if v.Allocation != nil {
		text += fmt.Sprintf(" allocation=%s/%s", v.Allocation.PodUID, v.Allocation.State)
	}
	return text
}

func show(t *testing.T, out *strings.Builder, l Ledger, words []string) {
	switch words[0] {
	case "account":
		if a := l.Account(t, words[1]); a != nil {
			fmt.Fprintf(out, "account %s: balance=%s reserved=%s available=%s charged=%s", a.Name,
				ledger.FormatCredits(a.Balance), ledger.FormatCredits(a.Reserved), ledger.FormatCredits(a.Available()), ledger.FormatCredits(a.Charged))
			if a.SubtreeBalance != a.Balance || a.SubtreeReserved != a.Reserved {
				fmt.Fprintf(out, " subtree: balance=%s reserved=%s", ledger.FormatCredits(a.SubtreeBalance), ledger.FormatCredits(a.SubtreeReserved))
			}
			if a.SubtreeOverspent != 0 {
				fmt.Fprintf(out, " overspent=%s", ledger.FormatCredits(a.SubtreeOverspent))
			}
			if a.Frozen != "" {
				fmt.Fprintf(out, " frozen=%q", a.Frozen)
			}
			out.WriteByte('\n')
			return
		}
	case "limits":
		if a := l.Account(t, words[1]); a != nil {
			fmt.Fprintf(out, "limits %s: held=%s running=%d subtree: held=%s running=%d", a.Name, ledger.FormatCredits(a.Held), a.Running,
				ledger.FormatCredits(a.SubtreeHeld), a.SubtreeRunning)
			if !a.SpentSince.IsZero() {
				fmt.Fprintf(out, " spent=%s since %s", ledger.FormatCredits(a.SubtreeSpent), a.SpentSince.Format(time.DateOnly))
			}
			if !a.DueAt.IsZero() {
				fmt.Fprintf(out, " due=%s", seconds(a.DueAt))
			}
			out.WriteByte('\n')
			return
		}
	case "lots":
		lots := l.LotsOf(t, words[1])
		sort.Slice(lots, func(i, j int) bool { return lots[i].Key < lots[j].Key })
		for _, lot := range lots {
			fmt.Fprintf(out, "%s: amount=%s free=%s held=%s expired=%s expires=%s\n", lot.Key, ledger.FormatCredits(lot.Amount),
				ledger.FormatCredits(lot.Free), ledger.FormatCredits(lot.Held), ledger.FormatCredits(lot.Expired), seconds(lot.ExpiresAt))
		}
		return
	case "entries":
		for _, e := range l.EntriesOf(t, words[1]) {
			showEntry(out, e)
		}
		return
	case "reservation":
		if r := l.Reservation(t, words[1]); r != nil {
			fmt.Fprintf(out, "reservation %s: %s amount=%s charged=%s remaining=%s overrun=%s%s", r.UID, r.State,
				ledger.FormatCredits(r.Amount), ledger.FormatCredits(r.Charged), ledger.FormatCredits(r.Remaining()), ledger.FormatCredits(r.Overrun()),
				describeTakes(" takes", r.Takes))
			if r.Payer != r.Account {
				fmt.Fprintf(out, " account=%s payer=%s", r.Account, r.Payer)
			}
			out.WriteByte('\n')
			return
		}
	case "allocation":
		if a := l.Allocation(t, words[1]); a != nil {
			fmt.Fprintf(out, "allocation %s: %s on %s, started=%s ended=%s charged=%s", a.PodUID, a.State, a.Node,
				seconds(a.StartedAt), seconds(a.EndedAt), ledger.FormatCredits(a.Charged))
			if a.RefundedFor != "" {
				fmt.Fprintf(out, " refunded=%s for %s", ledger.FormatCredits(a.Refunded), a.RefundedFor)
			}
			out.WriteByte('\n')
			return
		}
	case "intervals":
		for _, i := range l.Intervals(t, words[1]) {
			fmt.Fprintf(out, "%s..%s %s %s\n", seconds(i.Start), seconds(i.End), i.Source, ledger.FormatCredits(i.Charge))
		}
		return
	case "discrepancies":
		all := l.Discrepancies(t)
		sort.Slice(all, func(i, j int) bool { return all[i].Key < all[j].Key })
		for _, d := range all {
			fmt.Fprintf(out, "%s pod=%s account=%s\n  ledger: %s\n  other: %s\n", d.Kind, d.PodUID, d.Account, d.Ledger, d.Other)
			if !d.ResolvedAt.IsZero() {
				fmt.Fprintf(out, "  closed by %s: %s\n", d.ResolvedBy, d.Resolution)
			}
		}
		return
	}
	fmt.Fprintf(out, "no %s\n", strings.Join(words, " "))
}

func showEntry(out *strings.Builder, e ledger.Entry) {
	fmt.Fprintf(out, "%d %s %s: %s -> %s", e.ID, e.Kind, ledger.FormatCredits(e.Amount), e.Debit, e.Credit)
	if e.Spender != "" && e.Spender != e.Debit && e.Spender != e.Credit {
		fmt.Fprintf(out, " for %s", e.Spender)
	}
	if e.Corrects != 0 {
		fmt.Fprintf(out, " corrects %d", e.Corrects)
	}
	fmt.Fprintf(out, "%s due=%s recorded=%s", describeTakes(" draws", e.Draws), seconds(e.OccurredAt), seconds(e.RecordedAt))
	if e.Reason != "" {
		fmt.Fprintf(out, " (%s)", e.Reason)
	}
	out.WriteByte('\n')
}

func describeTakes(label string, takes []ledger.Take) string {
	if len(takes) == 0 {
		return ""
	}
	var parts []string
	for _, take := range takes {
		parts = append(parts, take.Lot+"*"+ledger.FormatCredits(take.Amount))
	}
	return label + "=" + strings.Join(parts, ",")
}

func seconds(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return strconv.FormatFloat(t.Sub(Start).Seconds(), 'f', -1, 64)
}
