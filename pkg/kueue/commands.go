package kueue

import (
	"context"
	"strconv"
	"time"

	"github.com/gpubank/gpubank/pkg/controller/submission"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// Both commands have a key that is made of the admission they are about, so that a repeat after a crash is recognised. The answer to a repeat
// says what was done then; if somebody undid it since, such as a controller that had slept, it is asked for once more.

func submitPause(ctx context.Context, store submission.Ledger, now time.Time, command ledger.PauseHold) (ledger.Verdict, error) {
	build := func(key string) ledger.Command { command.Key = key; return command }
	return insist(ctx, store, now, command.Key, build, paused)
}

func submitHold(ctx context.Context, store submission.Ledger, now time.Time, command ledger.EnsureHold) (ledger.Verdict, error) {
	build := func(key string) ledger.Command { command.Key = key; return command }
	return insist(ctx, store, now, command.Key, build, func(r ledger.Reservation) bool { return covers(r, command.Hold) })
}

func insist(ctx context.Context, store submission.Ledger, now time.Time, key string, build func(string) ledger.Command,
	done func(ledger.Reservation) bool,
) (ledger.Verdict, error) {
	verdict, err := submission.Anew(ctx, store, now, key, build)
	if err != nil || verdict.Refusal != nil || !verdict.Replayed || verdict.Reservation == nil || done(*verdict.Reservation) {
		return verdict, err
	}
	return store.Submit(ctx, build(key+":"+strconv.FormatInt(now.UnixMicro(), 10)))
}
