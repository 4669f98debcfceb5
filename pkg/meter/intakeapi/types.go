package intakeapi

import (
	"fmt"
	"time"
)

const (
	// RegisterPath, IntervalsPath and FaultsPath are the intake's endpoints. An intake of an earlier release answers 404 to
	// the last, and the agent keeps what it has to say.
	RegisterPath  = "/v1/register"
	IntervalsPath = "/v1/intervals"
	FaultsPath    = "/v1/faults"

	// Audience is the token audience the intake accepts: a token meant for the API server is not accepted here, nor
	// is one meant for the intake accepted there.
	Audience = "gpubank-intake"

	// MaxIntervals bounds one IntervalsRequest, so that a node that was cut off for days cannot occupy the intake
	// for longer than one group commit takes.
	MaxIntervals = 256
	// MaxFaults bounds one FaultsRequest.
	MaxFaults = 256
	// MaxBodyBytes bounds a request's body: MaxIntervals intervals of 64 GPUs each stay well below it.
	MaxBodyBytes = 2 << 20
)

// RegisterRequest announces a new agent process on a node. Each registration gets a higher epoch, and the intake
// refuses reports under an older one from then on.
type RegisterRequest struct {
	Node string `json:"node"`
	// Holder is random for each process, so that a registration that is sent again is recognised.
	Holder string `json:"holder"`
}

// RegisterResponse carries the epoch to report under, 1 or more.
type RegisterResponse struct {
	Epoch int64 `json:"epoch"`
}

// Interval is [Start, End) during which a pod held GPUUUIDs.
type Interval struct {
	// Key is IntervalKey of the rest: it comes from what was measured, not from the act of sending.
	Key    string `json:"key"`
	PodUID string `json:"podUID"`
	// PodStartedAt is the pod's status.startTime: charges are counted from it (I4).
	PodStartedAt time.Time `json:"podStartedAt"`
	Start        time.Time `json:"start"`
	End          time.Time `json:"end"`
	// GPUUUIDs are the devices held, sorted, at least one. A device shared by time-slicing appears with its replica
	// suffix ("GPU-…::2"), and is one share of that device.
	GPUUUIDs []string `json:"gpuUUIDs"`
}

// IntervalKey is the idempotency key of a pod's interval.
func IntervalKey(podUID string, start, end time.Time) string {
	return fmt.Sprintf("interval:%s:%d:%d", podUID, start.UnixMicro(), end.UnixMicro())
}

// IntervalsRequest reports intervals of pods on Node, at most MaxIntervals.
type IntervalsRequest struct {
	Node      string     `json:"node"`
	Epoch     int64      `json:"epoch"`
	Intervals []Interval `json:"intervals"`
}

// Fault is an XID error that the driver raised for a GPU after Since and not after At.
type Fault struct {
	// GPUUUID is the whole GPU's, or that of a MIG device on it.
	GPUUUID string `json:"gpuUUID"`
	// XID is NVIDIA's number of the error, 1 or more.
	XID   int64     `json:"xid"`
	Since time.Time `json:"since"`
	At    time.Time `json:"at"`
}

// FaultsRequest reports faults of Node's GPUs, at most MaxFaults. One that was reported before is no other.
type FaultsRequest struct {
	Node   string  `json:"node"`
	Epoch  int64   `json:"epoch"`
	Faults []Fault `json:"faults"`
}

// FaultsResponse says how many are kept now: all of the request's.
type FaultsResponse struct {
	Kept int `json:"kept"`
}

// Outcome says what became of one interval.
type Outcome string

const (
	// Charged: it is in the ledger now.
	Charged Outcome = "charged"
	// Repeat: it already was.
	Repeat Outcome = "repeat"
	// Refused: see Code, Message and Retry.
	Refused Outcome = "refused"
)

// Result answers one interval.
type Result struct {
	Key     string  `json:"key"`
	Outcome Outcome `json:"outcome"`
	// Code is the ledger's refusal code, or a reason of the intake's own.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Retry: the refusal may change (the pod's allocation is not known yet, the database is away), so the agent
	// keeps the interval. A refusal without it is final, and the ledger keeps the discrepancy.
	Retry bool `json:"retry"`
}

// Settled reports whether the agent may forget the interval.
func (r Result) Settled() bool { return r.Outcome != Refused || !r.Retry }

// IntervalsResponse has one result per interval of the request, in the same order.
type IntervalsResponse struct {
	Results []Result `json:"results"`
}

// ErrorResponse is the body of every answer but 200.
type ErrorResponse struct {
	Message string `json:"message"`
}
