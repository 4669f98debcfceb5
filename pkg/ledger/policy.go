package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy is what an account's owner has decided about its spending. See docs/designs/ledger-rules.md. The zero value
// is the plain account: it spends its own balance, without overdraft or limits.
type Policy struct {
	// OverdraftLimit is how far below zero available credits may fall through holds, 0 or more.
	OverdraftLimit Microcredits `json:"overdraft_limit_microcredits,omitempty"`
	// DefaultMaxRuntimeSeconds bounds a pod that declares no bound of its own; 0 means that there is no default.
	DefaultMaxRuntimeSeconds int64 `json:"default_max_runtime_seconds,omitempty"`
	// Funding says whose balance pays for the account's workloads; empty is FundingOwn.
	Funding Funding `json:"funding,omitempty"`
	// Spending bounds what the account and everything below it may spend in a period.
	Spending SpendingLimit `json:"spending,omitzero"`
	// RunningJobs bounds the workloads of the account and everything below it that run at once; 0 means no bound.
	RunningJobs int64 `json:"running_jobs,omitempty"`
	// GPUs says how many GPUs of each class the account and everything below it may use at once. The ledger keeps it with
	// the policy; the scheduler enforces it.
	GPUs GPULimits `json:"gpus,omitempty"`
	// HoldAt says when a workload's hold is placed; empty is HoldAtSubmission.
	HoldAt HoldMoment `json:"hold_at,omitempty"`
	// Overrun says what becomes of a workload that outlasts its hold.
	Overrun Overrun `json:"overrun,omitzero"`
	// Refunds says what is given back of an attempt that failed, was preempted or met a device fault.
	Refunds RefundPolicy `json:"refunds,omitzero"`
	// Refill adds credits at the beginning of each period.
	Refill Refill `json:"refill,omitzero"`
}

// Funding says whose balance pays.
type Funding string

const (
	// FundingOwn: the account's own.
	FundingOwn Funding = "Own"
	// FundingAncestor: that of the first account above whose funding is FundingOwn; a root pays itself.
	FundingAncestor Funding = "Ancestor"
)

// SpendingLimit bounds remaining holds plus charges less refunds since the current period began; the zero value is none.
type SpendingLimit struct {
	Amount Microcredits `json:"amount_microcredits,omitempty"`
	Period Period       `json:"period,omitempty"`
}

// Period is a calendar period in UTC. Weeks begin on Monday.
type Period string

const (
	PeriodDay     Period = "Day"
	PeriodWeek    Period = "Week"
	PeriodMonth   Period = "Month"
	PeriodQuarter Period = "Quarter"
	PeriodYear    Period = "Year"
)

// Periods lists every period, shortest first.
var Periods = []Period{PeriodDay, PeriodWeek, PeriodMonth, PeriodQuarter, PeriodYear}

// Start is when the period that contains t began; the zero time for no period.
func (p Period) Start(t time.Time) time.Time {
	t = t.UTC()
	year, month, day := t.Date()
	switch p {
	case PeriodDay:
	case PeriodWeek:
		day -= (int(t.Weekday()) + 6) % 7 // Date normalises days below 1
	case PeriodMonth:
		day = 1
	case PeriodQuarter:
		month, day = month-(month-1)%3, 1
	case PeriodYear:
		month, day = 1, 1
	default:
		return time.Time{}
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// Next is when the period after the one that contains t begins; the zero time for no period.
func (p Period) Next(t time.Time) time.Time {
	start := p.Start(t)
	switch p {
	case PeriodDay:
		return start.AddDate(0, 0, 1)
	case PeriodWeek:
		return start.AddDate(0, 0, 7)
	case PeriodMonth:
		return start.AddDate(0, 1, 0)
	case PeriodQuarter:
		return start.AddDate(0, 3, 0)
	case PeriodYear:
		return start.AddDate(1, 0, 0)
	}
	return time.Time{}
}

// HoldMoment says when a workload's hold is placed.
type HoldMoment string

const (
	// HoldAtSubmission: by the webhook, under the workload's UID.
	HoldAtSubmission HoldMoment = "Submission"
	// HoldAtAdmission: by the Kueue admission check, under the workload's UID.
	HoldAtAdmission HoldMoment = "Admission"
	// HoldAtPlacement: by the scheduler, for each pod under its own UID.
	HoldAtPlacement HoldMoment = "Placement"
)

// OverrunAction says what becomes of a workload that outlasts its hold.
type OverrunAction string

const (
	// OverrunStop: it is stopped when its hold is used up.
	OverrunStop OverrunAction = "Stop"
	// OverrunRenew: its hold grows in steps while every limit allows it; then it is stopped.
	OverrunRenew OverrunAction = "Renew"
	// OverrunOverdraft: it runs on while its payer is within its overdraft limit; then it is stopped.
	OverrunOverdraft OverrunAction = "Overdraft"
)

// Overrun is the zero value for OverrunStop without notice.
type Overrun struct {
	Action OverrunAction `json:"action,omitempty"`
	// LeadSeconds is how long before a hold is used up it is renewed, or an event announces the stop.
	LeadSeconds int64 `json:"lead_seconds,omitempty"`
	// StepSeconds is by how much run time on all its GPUs a renewal extends the hold; for OverrunRenew, 1 or more.
	StepSeconds int64 `json:"step_seconds,omitempty"`
}

// RefundPolicy says what is given back of one attempt's charge. Percentages are 0 to 100, rounded down.
type RefundPolicy struct {
	FailedPercent    int64 `json:"failed_percent,omitempty"`
	PreemptedPercent int64 `json:"preempted_percent,omitempty"`
	// PreemptedSinceCheckpoint gives a preempted attempt the price of the time since its last checkpoint instead, of all
	// its time if it reported none.
	PreemptedSinceCheckpoint bool `json:"preempted_since_checkpoint,omitempty"`
	// DeviceFault gives everything back when the node reported a fault of a GPU (an XID error).
	DeviceFault bool `json:"device_fault,omitempty"`
}

// Refill is a token bucket: Amount at the beginning of each period, while the balance is below Cap. Periods are whole
// multiples of PeriodSeconds since 1970 in UTC, and the one in which the policy is set is the first. The zero value is none.
type Refill struct {
	Amount        Microcredits `json:"amount_microcredits,omitempty"`
	PeriodSeconds int64        `json:"period_seconds,omitempty"`
	Cap           Microcredits `json:"cap_microcredits,omitempty"`
}

// maxRefills bounds Cap ÷ Amount, hence the entries that can fall due at once on an account that nobody touched.
const maxRefills = 1_000

// start is when the refill period that contains t began.
func (r Refill) start(t time.Time) time.Time {
	seconds := t.Unix()
	return time.Unix(seconds-seconds%r.PeriodSeconds, 0).UTC()
}

func (r Refill) period() time.Duration { return time.Duration(r.PeriodSeconds) * time.Second }

// GPULimits are the GPUs of each class that may be used at once, as text: "a100=8+4 h100=16+0" means 8 guaranteed and 4
// borrowable of class a100. A class that is not named has no limit. FormatGPULimits writes it, in the order of classes.
type GPULimits string

// GPULimit bounds one class. Guaranteed is the account's share; Borrowable is how many more it may use while others
// leave theirs idle.
type GPULimit struct {
	Class                  string
	Guaranteed, Borrowable int64
}

// FormatGPULimits writes limits in their one canonical form.
func FormatGPULimits(limits []GPULimit) GPULimits {
	sorted := slices.SortedFunc(slices.Values(limits), func(a, b GPULimit) int { return strings.Compare(a.Class, b.Class) })
	var parts []string
	for _, l := range sorted {
		parts = append(parts, fmt.Sprintf("%s=%d+%d", l.Class, l.Guaranteed, l.Borrowable))
	}
	return GPULimits(strings.Join(parts, " "))
}

// Parse reads the limits back; an error says which part is malformed, repeated or out of order.
func (g GPULimits) Parse() ([]GPULimit, error) {
	var limits []GPULimit
	for part := range strings.FieldsSeq(string(g)) {
		class, numbers, _ := strings.Cut(part, "=")
		guaranteed, borrowable, _ := strings.Cut(numbers, "+")
		limit := GPULimit{Class: class}
		var errs [2]error
		limit.Guaranteed, errs[0] = strconv.ParseInt(guaranteed, 10, 64)
		limit.Borrowable, errs[1] = strconv.ParseInt(borrowable, 10, 64)
		inRange := limit.Guaranteed >= 0 && limit.Guaranteed <= MaxGPUs && limit.Borrowable >= 0 && limit.Borrowable <= MaxGPUs
		if class == "" || errs[0] != nil || errs[1] != nil || !inRange {
			return nil, fmt.Errorf("GPU limit %q: want class=guaranteed+borrowable, each 0 to %d", part, MaxGPUs)
		}
		limits = append(limits, limit)
	}
	if canonical := FormatGPULimits(limits); canonical != g {
		return nil, fmt.Errorf("GPU limits %q: want them in the order of classes, as %q", string(g), string(canonical))
	}
	for i := 1; i < len(limits); i++ {
		if limits[i].Class == limits[i-1].Class {
			return nil, fmt.Errorf("GPU limits name class %s twice", limits[i].Class)
		}
	}
	return limits, nil
}

func (f *fieldCheck) policy(p Policy) {
	f.amount("overdraft limit", p.OverdraftLimit, 0)
	f.number("default max runtime in seconds", p.DefaultMaxRuntimeSeconds, 0, MaxGPUSeconds)
	f.oneOf("funding", string(p.Funding), string(FundingOwn), string(FundingAncestor))
	f.oneOf("spending period", string(p.Spending.Period), string(PeriodDay), string(PeriodWeek), string(PeriodMonth), string(PeriodQuarter), string(PeriodYear))
	f.amount("spending limit", p.Spending.Amount, 0)
	if (p.Spending.Period == "") != (p.Spending.Amount == 0) {
		f.fail(Invalid, "a spending limit needs both an amount above 0 and a period; it has %s credits and period %q",
			FormatCredits(p.Spending.Amount), string(p.Spending.Period))
	}
	f.number("running jobs", p.RunningJobs, 0, MaxGPUSeconds)
	f.text("GPU limits", string(p.GPUs), 0, maxTextBytes)
	if _, err := p.GPUs.Parse(); err != nil {
		f.fail(Invalid, "%s", err)
	}
	f.oneOf("hold moment", string(p.HoldAt), string(HoldAtSubmission), string(HoldAtAdmission), string(HoldAtPlacement))
	f.oneOf("overrun action", string(p.Overrun.Action), string(OverrunStop), string(OverrunRenew), string(OverrunOverdraft))
	f.number("overrun lead in seconds", p.Overrun.LeadSeconds, 0, maxPeriodSeconds)
	f.number("overrun step in seconds", p.Overrun.StepSeconds, 0, maxPeriodSeconds)
	if p.Overrun.Action == OverrunRenew && p.Overrun.StepSeconds == 0 {
		f.fail(Invalid, "overrun action Renew needs a step of at least 1 second")
	}
	f.number("refund of failed attempts in percent", p.Refunds.FailedPercent, 0, 100)
	f.number("refund of preempted attempts in percent", p.Refunds.PreemptedPercent, 0, 100)
	f.refill(p.Refill)
}

func (f *fieldCheck) refill(r Refill) {
	if r == (Refill{}) {
		return
	}
	f.amount("refill", r.Amount, 1)
	f.amount("refill cap", r.Cap, 1)
	f.number("refill period in seconds", r.PeriodSeconds, 1, maxPeriodSeconds)
	if f.refusal == nil && (r.Cap < r.Amount || r.Cap/r.Amount > maxRefills) {
		f.fail(Invalid, "refill of %s credits up to %s: the cap must be 1 to %d times the amount",
			FormatCredits(r.Amount), FormatCredits(r.Cap), maxRefills)
	}
}

// maxPeriodSeconds is ten years.
const maxPeriodSeconds = 315_360_000

// oneOf takes one of the known values, or nothing.
func (f *fieldCheck) oneOf(field, value string, known ...string) {
	if value != "" && !slices.Contains(known, value) {
		f.fail(Invalid, "%s %q: want one of %s", field, value, strings.Join(known, ", "))
	}
}
