package postgres_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

// BenchmarkHolds measures durable holds per second on accounts with one root in common, by the number of callers that
// wait at once and the most commands that one commit takes.
func BenchmarkHolds(b *testing.B) {
	for _, callers := range []int{1, 64, 1024, 4096} {
		for _, limit := range []int{256, 512, 1024, 2048} {
			if limit > 256 && callers <= 256 {
				continue // a batch never gets that large
			}
			b.Run(fmt.Sprintf("callers=%d/batch=%d", callers, limit), func(b *testing.B) { benchmarkHolds(b, callers, limit) })
		}
	}
}

func benchmarkHolds(b *testing.B, callers, limit int) {
	f := newFixture(b)
	store := f.open(postgres.Options{BatchLimit: limit})
	const accounts = 10
	f.do(lt.Account("root", "", ledger.MaxAmount/4), lt.Rate())
	for i := range accounts {
		f.do(lt.Account(fmt.Sprintf("team-%d", i), "root", ledger.MaxAmount/4))
	}
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	began := time.Now()
	for range callers {
		all.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				v, err := store.Submit(b.Context(), lt.Hold(fmt.Sprintf("job-%d", n), fmt.Sprintf("team-%d", n%accounts), 1, 10))
				if err != nil || v.Refusal != nil {
					b.Errorf("hold %d: %+v, %v", n, v.Refusal, err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "holds/s")
	b.StopTimer()
}
