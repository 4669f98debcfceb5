package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// A verification holds sealPage seals in memory, and the entries of as many of them as have pageEntries or so.
const (
	sealPage    = 500
	pageEntries = 20_000
)

// VerifyChains hashes every sealed entry again, in one snapshot and page by page, and compares with the seals and with the heads
// that pins names, which were read earlier by ChainHeads. Writers and the sealer go on meanwhile.
func (s *Store) VerifyChains(ctx context.Context, pins []ledger.ChainHead) (report ledger.ChainReport, err error) {
	v := &chainWalk{pins: make(map[string][]ledger.ChainHead)}
	for _, pin := range pins {
		v.pins[pin.Account] = append(v.pins[pin.Account], pin)
	}
	err = s.snapshot(ctx, func(tx pgx.Tx) error {
		v.report = ledger.ChainReport{}
		return v.walk(ctx, tx)
	})
	if err != nil {
		return ledger.ChainReport{}, fmt.Errorf("verify the chains of entries: %w", meaning(err))
	}
	return v.report, nil
}

// chainWalk goes through all chains, in the order of accounts.
type chainWalk struct {
	pins   map[string][]ledger.ChainHead // of accounts that were not come to yet
	at     *ledger.Verifier
	report ledger.ChainReport
}

func (v *chainWalk) walk(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, query("SealSettings")); err != nil {
		return err
	}
	for account, number := "", int64(0); ; {
		rows, err := tx.Query(ctx, query("SealPage"), account, number, sealPage)
		if err != nil {
			return err
		}
		seals, err := pgx.CollectRows(rows, scanSeal)
		if err != nil {
			return err
		}
		last := len(seals) < sealPage
		if fit := fitting(seals); len(fit) < len(seals) {
			seals, last = fit, false
		}
		if err := v.page(ctx, tx, seals); err != nil {
			return err
		}
		if last {
			break
		}
		end := seals[len(seals)-1].Head
		account, number = end.Account, end.Seals
	}
	if err := v.endAccount(ctx, tx); err != nil {
		return err
	}
	for account, pins := range v.pins { // accounts that have no seals at all
		verifier := ledger.NewVerifier(account, pins)
		if err := v.keep(ctx, tx, verifier.End()); err != nil {
			return err
		}
	}
	if err := v.strangers(ctx, tx); err != nil {
		return err
	}
	return v.tails(ctx, tx)
}

// fitting is the seals from the first on whose entries fit into memory together, one at least.
func fitting(seals []ledger.Seal) []ledger.Seal {
	var entries int64
	for i := range seals {
		if entries += seals[i].Entries; entries > pageEntries && i > 0 {
			return seals[:i]
		}
	}
	return seals
}

// page compares seals with the entries that they cover.
func (v *chainWalk) page(ctx context.Context, tx pgx.Tx, seals []ledger.Seal) error {
	if len(seals) == 0 {
		return nil
	}
	found := make([][]ledger.Entry, len(seals))
	after := make([]ledger.ChainHead, len(seals)) // where each seal begins
	for i := range seals {
		switch account := seals[i].Head.Account; {
		case i > 0 && seals[i-1].Head.Account == account:
			after[i] = seals[i-1].Head
		case i == 0 && v.at != nil && v.at.Head().Account == account:
			after[i] = v.at.Head()
		default:
			after[i] = ledger.NewChain(account)
		}
	}
	rows, err := tx.Query(ctx, query("SealRanges"),
		column(seals, func(s *ledger.Seal) string { return s.Head.Account }),
		column(after, func(h *ledger.ChainHead) time.Time { return keyTime(*h) }),
		column(after, func(h *ledger.ChainHead) int64 { return h.LastEntry }),
		column(seals, func(s *ledger.Seal) time.Time { return s.Head.LastRecordedAt }),
		column(seals, func(s *ledger.Seal) int64 { return s.Head.LastEntry }))
	if err != nil {
		return err
	}
	if _, err := eachChained(rows, func(position int64, e ledger.Entry) { found[position-1] = append(found[position-1], e) }); err != nil {
		return err
	}
	for i, seal := range seals {
		account := seal.Head.Account
		if v.at == nil || v.at.Head().Account != account {
			if err := v.endAccount(ctx, tx); err != nil {
				return err
			}
			v.at = ledger.NewVerifier(account, v.pins[account])
			delete(v.pins, account)
		}
		v.at.Seal(seal, found[i])
		v.report.Sealed += seal.Entries
	}
	return nil
}

// endAccount keeps what differs in the account whose seals were all read.
func (v *chainWalk) endAccount(ctx context.Context, tx pgx.Tx) error {
	if v.at == nil {
		return nil
	}
	verifier := v.at
	v.at = nil
	return v.keep(ctx, tx, verifier.End())
}

func (v *chainWalk) keep(ctx context.Context, tx pgx.Tx, differences []ledger.Difference) error {
	for _, d := range differences {
		if d.Kind == ledger.EntryMissing {
			where, err := whereabouts(ctx, tx, d.Entry)
			if err != nil {
				return err
			}
			d.Detail += "; " + where
		}
		v.report.Violations = append(v.report.Violations, d.Violation())
	}
	return nil
}

// whereabouts says what has become of an entry that is missing from an account.
func whereabouts(ctx context.Context, tx pgx.Tx, id int64) (string, error) {
	rows, err := tx.Query(ctx, query("SealWhereabouts"), id)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	if !rows.Next() {
		return "it was deleted", rows.Err()
	}
	e, err := scanChained(rows)
	return "the entry of that number now says: " + e.Describe(), err
}

func (v *chainWalk) strangers(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, query("SealStrangers"))
	if err != nil {
		return err
	}
	accounts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, account := range accounts {
		v.report.Violations = append(v.report.Violations, ledger.Violation{
			Invariant: "I8", Subject: "account " + account, Mark: "chain:stranger",
			Detail: "entries of it were sealed, and there is no such account any more",
		})
	}
	return err
}

// tails looks at what is not sealed yet: after the end of its chain an account's entries are in the order of their ids.
func (v *chainWalk) tails(ctx context.Context, tx pgx.Tx) error {
	var orderlyFrom int64
	if err := tx.QueryRow(ctx, query("SealOrderlyFrom")).Scan(&orderlyFrom); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	rows, err := tx.Query(ctx, query("SealTails"))
	if err != nil {
		return err
	}
	var account, before string
	var lastSealed, id, last int64
	var recordedAt time.Time
	disorderly := false
	_, err = pgx.ForEachRow(rows, []any{&account, &lastSealed, &id, &recordedAt}, func() error {
		if account != before {
			before, last, disorderly = account, lastSealed, false
		}
		v.report.Unsealed++
		if v.report.UnsealedSince.IsZero() || recordedAt.Before(v.report.UnsealedSince) {
			v.report.UnsealedSince = recordedAt.UTC()
		}
		if id > orderlyFrom && id < last && !disorderly {
			disorderly = true
			v.report.Violations = append(v.report.Violations, ledger.Violation{
				Invariant: "I8", Subject: "account " + account, Accounts: []string{account}, Entry: id, Mark: fmt.Sprintf("chain:order:%d", id),
				Detail: fmt.Sprintf("entry %d was recorded %s, after entry %d: it was written behind the ledger's back", id, recordedAt.UTC().Format(time.RFC3339Nano), last),
			})
		}
		last = max(last, id)
		return nil
	})
	return err
}
