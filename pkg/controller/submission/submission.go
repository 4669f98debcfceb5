// Package submission asks the ledger for a decision under keys that survive restarts of the asker.
package submission

import (
	"context"
	"strconv"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Ledger decides one command.
type Ledger interface {
	// Submit returns after the commit is durable. An error means that there is no answer (yet), never a refusal.
	Submit(ctx context.Context, command ledger.Command) (ledger.Verdict, error)
}

// Anew submits a command that the ledger carries out conditionally (a transition, a setting), so that asking twice can
// do no harm. It begins with the caller's own key, so that a restart repeats itself and is answered alike. Past a
// remembered refusal, or a first attempt with other content, it asks under a key made of now.
//
// It is not for grants: those have one key, and no other attempt.
func Anew(ctx context.Context, store Ledger, now time.Time, key string, build func(key string) ledger.Command) (ledger.Verdict, error) {
	verdict, err := store.Submit(ctx, build(key))
	if err != nil || verdict.Refusal == nil {
		return verdict, err
	}
	if verdict.Replayed || verdict.Refusal.Code == ledger.KeyReused {
		return store.Submit(ctx, build(key+":"+strconv.FormatInt(now.UnixMicro(), 10)))
	}
	return verdict, nil
}
