package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// peace is a store that nothing disturbs, after everything that could still write has ended.
func (r *run) peace(ctx context.Context) (*postgres.Store, error) {
	if err := r.awaitSilence(ctx); err != nil {
		return nil, err
	}
	end := start
	for _, lane := range r.plan.Lanes {
		for _, d := range lane {
			end = later(end, d.At)
		}
	}
	clock := newClock()
	clock.reach(end.Add(time.Hour)) // nothing that was said lies in the future
	return postgres.Open(ctx, r.url, postgres.Options{Clock: clock})
}

// awaitSilence waits until no connection to the database is left: what a dead writer sent may be executed until then.
func (r *run) awaitSilence(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, r.options.Postgres.AdminURL("postgres"))
		if err != nil {
			return fmt.Errorf("wait for the writers' connections to end: %w", err)
		}
		var open int
		err = conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'", r.database).Scan(&open)
		_ = conn.Close(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("wait for the writers' connections to end: %w", err)
		case open == 0:
			return nil
		}
		rest(ctx, 20*time.Millisecond)
	}
}

// settle ends what is open and asks for every answer again, in peace.
func (r *run) settle(ctx context.Context) error {
	store, err := r.peace(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := r.resolve(ctx, store); err != nil {
		return err
	}
	if err := r.endEverything(ctx, store); err != nil {
		return err
	}
	if err := r.repeatEverything(ctx, store); err != nil {
		return err
	}
	return r.forgetEverything(ctx, store)
}

// resolve learns the outcome of what was sent and never answered, as a caller does.
func (r *run) resolve(ctx context.Context, store *postgres.Store) error {
	var open []*record
	for _, rec := range r.book.records {
		if rec.unknown() {
			open = append(open, rec)
		}
	}
	return r.ask(ctx, store, open)
}

// ask sends records' commands again, intervals under the current epoch, and notes the answers.
func (r *run) ask(ctx context.Context, store *postgres.Store, records []*record) error {
	for batch := range slices.Chunk(records, 1_000) {
		commands := commandsOf(batch)
		for i, c := range commands {
			if interval, ok := c.(ledger.RecordInterval); ok {
				interval.OwnerEpoch = r.epochs.of(interval.Node)
				commands[i] = interval
			}
		}
		verdicts, err := store.SubmitAll(ctx, commands)
		if err != nil {
			return fmt.Errorf("ask for answers again: %w", err)
		}
		r.book.sent(commands)
		r.book.answered(commands, verdicts)
	}
	return nil
}

// endEverything ends every pod that was placed and closes every workload, as their controllers would in the end.
func (r *run) endEverything(ctx context.Context, store *postgres.Store) error {
	var ends, closes []ledger.Command
	closed := make(map[string]bool)
	for _, pod := range r.plan.Pods {
		ends = append(ends, pod.EndCommand)
	}
	for _, rec := range r.book.records {
		var uids []string
		if c, ok := rec.command.(ledger.PlaceHold); ok {
			uids = append(uids, c.UID)
		}
		for _, c := range placements(rec.command) {
			uids = append(uids, c.Reservation)
		}
		for _, uid := range uids {
			if !closed[uid] {
				closed[uid] = true
				closes = append(closes, ledger.CloseReservation{Key: "last-close:" + uid, UID: uid, Outcome: ledger.Released, Reason: "the end"})
			}
		}
	}
	for _, commands := range [][]ledger.Command{ends, closes} {
		for batch := range slices.Chunk(commands, 1_000) {
			r.book.sent(batch)
			verdicts, err := store.SubmitAll(ctx, batch)
			if err != nil {
				return fmt.Errorf("end what is open: %w", err)
			}
			r.book.answered(batch, verdicts)
		}
	}
	open, err := store.OpenReservations(ctx)
	for _, left := range open {
		r.book.violate("I5: the hold of workload %s is open although it was ended: %+v", left.UID, left)
	}
	return err
}

// repeatEverything asks for every answer that was given for good once more (I6), and looks that this changes nothing.
func (r *run) repeatEverything(ctx context.Context, store *postgres.Store) error {
	var answered []*record
	var touch []ledger.Command // so that what has fallen due is posted before, not by the repetitions
	touched := make(map[string]bool)
	for _, rec := range r.book.records {
		placed := placements(rec.command)
		if rec.final != nil && (len(placed) == 0 || placed[0].LeaderEpoch == r.epochs.of(placed[0].Leader)) { // an old leader is refused (I7)
			answered = append(answered, rec)
		}
		if c, ok := rec.command.(ledger.SetAccount); ok && !touched[c.Account] {
			touched[c.Account] = true
			touch = append(touch, ledger.PostDue{Key: "touch", Account: c.Account})
		}
	}
	if _, err := store.SubmitAll(ctx, touch); err != nil {
		return fmt.Errorf("post what has fallen due: %w", err)
	}
	before, err := store.Size(ctx)
	if err != nil {
		return err
	}
	err = r.ask(ctx, store, answered)
	r.counter.add(func(n *Counts) { n.Repeated += len(answered) })
	after, sizeErr := store.Size(ctx)
	if err == nil && sizeErr == nil && after != before {
		r.book.violate("I6: repeating everything made %+v out of %+v", after, before)
	}
	return errors.Join(err, sizeErr)
}
