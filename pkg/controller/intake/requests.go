package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

// codeMalformed is the intake's own refusal of one interval whose key is not what was measured.
const codeMalformed = "MalformedKey"

// decode reads one JSON value strictly: unknown fields and trailing bytes are refused, so that a typing error can
// never pass as an omitted field.
func decode(body io.Reader, into any) error {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return &refusal{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit)}
		}
		return fmt.Errorf("decode request: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode request: more than one JSON value")
	}
	return nil
}

// checkReport decides whether the request as a whole can be answered.
func checkReport(request intakeapi.IntervalsRequest) error {
	switch {
	case request.Epoch < 1:
		return fmt.Errorf("epoch is %d; register first", request.Epoch)
	case len(request.Intervals) == 0:
		return errors.New("no intervals")
	case len(request.Intervals) > intakeapi.MaxIntervals:
		return &refusal{http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("%d intervals; send at most %d at once", len(request.Intervals), intakeapi.MaxIntervals)}
	}
	return nil
}

const (
	// maxXID is far above any number that the driver has: metrics are labelled with it.
	maxXID = 999
	// maxGPUUUIDBytes is that of the intervals' GPUs.
	maxGPUUUIDBytes = 256
	// futureTolerance is the ledger's own, for a node whose time daemon has just started.
	futureTolerance = 30 * time.Second
)

// checkFaults decides whether a report of faults can be kept. The agent keeps what is refused, so what only lies in the
// future is taken once it does not.
func checkFaults(request intakeapi.FaultsRequest, now time.Time) error {
	switch {
	case request.Epoch < 1:
		return fmt.Errorf("epoch is %d; register first", request.Epoch)
	case len(request.Faults) == 0:
		return errors.New("no faults")
	case len(request.Faults) > intakeapi.MaxFaults:
		return &refusal{http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("%d faults; send at most %d at once", len(request.Faults), intakeapi.MaxFaults)}
	}
	for i, fault := range request.Faults {
		switch {
		case fault.GPUUUID == "" || len(fault.GPUUUID) > maxGPUUUIDBytes || !utf8.ValidString(fault.GPUUUID) || strings.ContainsRune(fault.GPUUUID, 0):
			return fmt.Errorf("fault %d: gpuUUID %q: want 1 to %d bytes of text", i, fault.GPUUUID, maxGPUUUIDBytes)
		case fault.XID < 1 || fault.XID > maxXID:
			return fmt.Errorf("fault %d: xid is %d: want 1 to %d", i, fault.XID, maxXID)
		case fault.Since.IsZero() || fault.At.Before(fault.Since):
			return fmt.Errorf("fault %d: from %s to %s is no time", i, fault.Since, fault.At)
		case fault.At.After(now.Add(futureTolerance)):
			return fmt.Errorf("fault %d: %s is in the future: the intake's clock says %s", i, fault.At, now)
		}
	}
	return nil
}

// command is what the ledger is asked about one interval.
func command(node string, epoch int64, interval intakeapi.Interval) ledger.RecordInterval {
	return ledger.RecordInterval{
		Key:          interval.Key,
		PodUID:       interval.PodUID,
		Node:         node,
		OwnerEpoch:   epoch,
		PodStartedAt: interval.PodStartedAt.UTC(),
		Start:        interval.Start.UTC(),
		End:          interval.End.UTC(),
		GPUUUIDs:     interval.GPUUUIDs,
	}
}

// checkInterval refuses an interval whose key or precision would let the same time appear under two identities.
func checkInterval(interval intakeapi.Interval) *intakeapi.Result {
	message := ""
	switch {
	case interval.Key != intakeapi.IntervalKey(interval.PodUID, interval.Start, interval.End):
		message = "the key does not belong to this pod and these times"
	case !wholeMicroseconds(interval.PodStartedAt, interval.Start, interval.End):
		message = "times must be whole microseconds"
	default:
		return nil
	}
	return &intakeapi.Result{Key: interval.Key, Outcome: intakeapi.Refused, Code: codeMalformed, Message: message}
}

func wholeMicroseconds(times ...time.Time) bool {
	for _, t := range times {
		if !t.Equal(t.Truncate(time.Microsecond)) {
			return false
		}
	}
	return true
}

// unknownPodPatience is how old an interval of a pod without an allocation may become before its refusal is final. An
// allocation that is still to come (a controller or database that was away) comes within minutes of the intake's own
// return, and charges the pod's whole time whether or not intervals cover it. Without an end, pods that nobody pays for,
// such as one that carries an account's label in a namespace that is not enrolled, would fill their node's spool for good.
const unknownPodPatience = time.Hour

// result translates the ledger's verdict on an interval for the agent.
func result(interval intakeapi.Interval, verdict ledger.Verdict, now time.Time) intakeapi.Result {
	switch {
	case verdict.Refusal != nil:
		code := verdict.Refusal.Code
		givenUp := code == ledger.UnknownPod && now.Sub(interval.End) > unknownPodPatience
		return intakeapi.Result{
			Key: interval.Key, Outcome: intakeapi.Refused, Code: string(code),
			Message: verdict.Refusal.Message, Retry: code.Retryable() && !givenUp,
		}
	case verdict.Replayed:
		return intakeapi.Result{Key: interval.Key, Outcome: intakeapi.Repeat}
	default:
		return intakeapi.Result{Key: interval.Key, Outcome: intakeapi.Charged}
	}
}
