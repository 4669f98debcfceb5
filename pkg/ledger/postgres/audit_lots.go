package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// lotFold is what entries and open reservations say of one lot.
type lotFold struct {
	drawn, expired, held ledger.Microcredits
}

// lotFolds are the folds of all lots by key, and what is wrong with the rows that they were made from.
type lotFolds struct {
	stored  map[string]ledger.Lot
	byKey   map[string]*lotFold
	missing map[string]ledger.Violation // lots that are named and not there
	found   []ledger.Violation
}

func foldLots(ctx context.Context, tx pgx.Tx) (*lotFolds, error) {
	f := &lotFolds{stored: make(map[string]ledger.Lot), byKey: make(map[string]*lotFold), missing: make(map[string]ledger.Violation)}
	rows, err := tx.Query(ctx, query("LotAll"))
	if err != nil {
		return nil, err
	}
	lots, err := pgx.CollectRows(rows, scanLot)
	if err != nil {
		return nil, err
	}
	for _, lot := range lots {
		f.stored[lot.Key], f.byKey[lot.Key] = lot, &lotFold{}
	}
	if err := f.addDraws(ctx, tx); err != nil {
		return nil, err
	}
	return f, f.addTakes(ctx, tx)
}

// addDraws adds what entries took out of lots.
func (f *lotFolds) addDraws(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, query("AuditDraws"))
	if err != nil {
		return err
	}
	var e ledger.Entry
	var text string
	_, err = pgx.ForEachRow(rows, []any{&e.ID, &e.Kind, &e.Key, &e.Debit, &e.Credit, &e.Amount, &text}, func() error {
		payer, brought := e.Debit, fmt.Sprintf("transfer:%s#", e.Key)
		if e.Kind == ledger.EntryGrant { // a lot that fills what is missing draws on itself
			payer = e.Credit
		}
		subject := fmt.Sprintf("entry %d", e.ID)
		draws, sum, err := f.read(subject, text, func(lot string) string {
			if e.Kind == ledger.EntryTransfer && strings.HasPrefix(lot, brought) { // so does a lot that is transferred
				return e.Credit
			}
			return payer
		})
		sum -= drawnOn(draws, brought)
		if err != nil {
			f.wrong("I2", subject, payer, "draws", "its draws cannot be read: %s", err)
			return nil
		}
		if sum > e.Amount {
			f.wrong("I2", subject, payer, "draws", "draws %d from lots, and moves %d", sum, e.Amount)
		}
		for i, draw := range draws {
			fold := f.byKey[draw.Lot]
			if fold == nil {
				continue
			}
			fold.drawn += draw.Amount
			if e.Kind == ledger.EntryExpiry {
				fold.expired += draw.Amount
			}
			if e.Kind == ledger.EntryTransfer && !strings.HasPrefix(draw.Lot, brought) {
				f.transferred(ledger.TransferredLotKey(e.Key, i), e.Credit, draw.Amount)
			}
		}
		return nil
	})
	return err
}

// drawnOn is what was taken from lots whose key begins like this.
func drawnOn(takes []ledger.Take, prefix string) (sum ledger.Microcredits) {
	for _, take := range takes {
		if strings.HasPrefix(take.Lot, prefix) {
			sum += take.Amount
		}
	}
	return sum
}

// transferred says that a lot must have come to an account.
func (f *lotFolds) transferred(key, account string, amount ledger.Microcredits) {
	lot, there := f.stored[key]
	switch {
	case !there:
		f.missing[key] = ledger.Violation{Invariant: "I2", Subject: "lot " + key, Accounts: []string{account}, Mark: "missing",
			Detail: fmt.Sprintf("of %d was transferred to account %s and is not there", amount, account)}
	case lot.Account != account || lot.Amount != amount:
		f.wrong("I2", "lot "+key, account, "origin", "is %d of account %s; %d were transferred to account %s", lot.Amount, lot.Account, amount, account)
	}
}

// addTakes adds what open reservations hold of lots.
func (f *lotFolds) addTakes(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, query("AuditTakes"))
	if err != nil {
		return err
	}
	var r ledger.Reservation
	var open bool
	var text string
	_, err = pgx.ForEachRow(rows, []any{&r.UID, &r.Account, &r.Payer, &open, &r.Amount, &r.Charged, &text}, func() error {
		subject, remaining := "reservation "+r.UID, max(0, r.Amount-r.Charged)
		if !open {
			remaining = 0
		}
		takes, sum, err := f.read(subject, text, func(string) string { return r.Payer })
		if err != nil {
			f.wrong("I2", subject, r.Payer, "takes", "what it took from lots cannot be read: %s", err)
			return nil
		}
		if sum > remaining {
			f.wrong("I2", subject, r.Payer, fmt.Sprintf("takes:%d", sum-remaining), "has %d of lots, and holds %d", sum, remaining)
		}
		for _, take := range takes {
			if fold := f.byKey[take.Lot]; fold != nil && open {
				fold.held += take.Amount
			}
		}
		return nil
	})
	return err
}

// read parses draws or takes and checks whose the lots are.
func (f *lotFolds) read(subject, text string, ownerOf func(lot string) string) (takes []ledger.Take, sum ledger.Microcredits, err error) {
	if takes, err = readTakes(text); err != nil {
		return nil, 0, err
	}
	for _, take := range takes {
		lot, there := f.stored[take.Lot]
		payer := ownerOf(take.Lot)
		switch {
		case !there:
			f.missing[take.Lot] = ledger.Violation{Invariant: "I2", Subject: "lot " + take.Lot, Accounts: []string{payer}, Mark: "missing",
				Detail: fmt.Sprintf("%s took %d of it, and it is not there", subject, take.Amount)}
		case lot.Account != payer:
			f.wrong("I2", subject, payer, "lot "+take.Lot, "took %d of lot %s, which is account %s's", take.Amount, take.Lot, lot.Account)
		}
		if take.Amount <= 0 {
			f.wrong("I2", subject, payer, "lot "+take.Lot, "took %d of lot %s", take.Amount, take.Lot)
		}
		sum += take.Amount
	}
	return takes, sum, nil
}

func (f *lotFolds) wrong(invariant, subject, account, mark, format string, args ...any) {
	f.found = append(f.found, ledger.Violation{
		Invariant: invariant, Subject: subject, Accounts: []string{account}, Mark: mark, Detail: fmt.Sprintf(format, args...),
	})
}

// auditLots checks that every lot is what was not drawn of it, and holds what open reservations took.
func auditLots(ctx context.Context, tx pgx.Tx) ([]ledger.Violation, error) {
	f, err := foldLots(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(f.missing)) {
		f.found = append(f.found, f.missing[key])
	}
	for _, key := range slices.Sorted(maps.Keys(f.stored)) {
		got, want := f.stored[key], f.rebuilt(key)
		if got != want {
			f.wrong("I2", "lot "+key, got.Account, fmt.Sprintf("free%+d held%+d expired%+d", got.Free-want.Free, got.Held-want.Held, got.Expired-want.Expired),
				"has %d free, %d held and %d expired of %d; by entries and open reservations it should have %d, %d and %d",
				got.Free, got.Held, got.Expired, got.Amount, want.Free, want.Held, want.Expired)
		}
	}
	return f.found, nil
}

// rebuilt is a lot as the fold says.
func (f *lotFolds) rebuilt(key string) ledger.Lot {
	lot, fold := f.stored[key], f.byKey[key]
	lot.Held, lot.Expired = fold.held, fold.expired
	lot.Free = lot.Amount - fold.drawn - fold.held
	return lot
}

// rebuiltLots are the lots that have to change.
func rebuiltLots(ctx context.Context, tx pgx.Tx) (changed []ledger.Lot, err error) {
	f, err := foldLots(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(f.missing)) {
		return nil, fmt.Errorf("%s", f.missing[key])
	}
	for _, key := range slices.Sorted(maps.Keys(f.stored)) {
		if want := f.rebuilt(key); f.stored[key] != want {
			changed = append(changed, want)
		}
	}
	return changed, nil
}
