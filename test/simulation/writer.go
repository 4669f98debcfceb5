package simulation

import (
	"context"
	"sync"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// writer is one ledger store among several, with its own clock.
type writer interface {
	// submit decides commands together, once the writer's clock has reached simulated time at. An error means that their
	// outcome is unknown to the caller.
	submit(ctx context.Context, at time.Time, async bool, commands []ledger.Command) ([]ledger.Verdict, error)
	// jump sets what the writer's clock is wrong by.
	jump(offset time.Duration)
	// restart closes the store and opens another.
	restart() error
	// close ends it; what is in flight may still be executed until then.
	close()
}

// localWriter is a store in this process.
type localWriter struct {
	url   string
	clock *clock

	mu    sync.RWMutex
	store *postgres.Store
}

func newLocalWriter(url string) (*localWriter, error) {
	w := &localWriter{url: url, clock: newClock()}
	return w, w.open()
}

func (w *localWriter) open() error {
	store, err := postgres.Open(context.Background(), w.url, postgres.Options{Clock: w.clock})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store = store
	return err
}

func (w *localWriter) current() *postgres.Store {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.store
}

func (w *localWriter) submit(ctx context.Context, at time.Time, async bool, commands []ledger.Command) ([]ledger.Verdict, error) {
	w.clock.reach(at)
	store := w.current()
	if !async {
		return store.SubmitAll(ctx, commands)
	}
	pending := make([]*postgres.Pending, len(commands))
	for i, c := range commands {
		pending[i] = store.Start(c)
	}
	verdicts := make([]ledger.Verdict, len(commands))
	for i, p := range pending {
		var err error
		if verdicts[i], err = p.Wait(ctx); err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

func (w *localWriter) jump(offset time.Duration) { w.clock.jump(offset) }

func (w *localWriter) restart() error {
	w.current().Close()
	return w.open()
}

func (w *localWriter) close() { w.current().Close() }
