// Package submission asks the ledger for a decision under keys that survive restarts of the asker.
package submission

import (
	"context"
	"fmt"
	"strconv"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// Ledger decides one command.
type Ledger interface {
	// Submit returns after the commit is durable. An error means that there is no answer (yet), never a refusal.
	Submit(ctx context.Context, command ledger.Command) (ledger.Verdict, error)
}

// maxAttempts bounds the walk over remembered refusals. A caller backs off between attempts, to at least seconds, so
// this many take hours; then a person has to look.
const maxAttempts = 10_000

// Afresh submits the command that build makes, skipping remembered refusals: the ledger answers a repeated key with
// the first answer, although what caused a refusal may have passed.
//
// The keys are tried in one fixed order (key, key:1, key:2, …). A walk that is cut short by a crash after a
// command was carried out is answered with that success when it is repeated, so a command that must happen once
// (a grant, L12) does.
func Afresh(ctx context.Context, store Ledger, key string, build func(key string) ledger.Command) (ledger.Verdict, error) {
	attemptKey := key
	for attempt := 1; attempt <= maxAttempts; attempt++ {
		verdict, err := store.Submit(ctx, build(attemptKey))
		if err != nil {
			return ledger.Verdict{}, err
		}
		if verdict.Refusal == nil || !verdict.Replayed || verdict.Refusal.Code == ledger.KeyReused {
			return verdict, nil
		}
		attemptKey = key + ":" + strconv.Itoa(attempt)
	}
	return ledger.Verdict{}, fmt.Errorf("submit %s: refused %d times, and each refusal is remembered; see the ledger's command log", key, maxAttempts)
}
