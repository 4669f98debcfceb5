package postgres_test

import (
	"math"
	"testing"
	"time"

	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/test/cluster"
)

// Ended, running, intended, given up and very old allocations, each as the formula has it, read with the scheduler's own rights.
func TestAverageUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.takeCharge()
	f.clock.SetTime(lt.At(0))
	f.do(lt.Account("lab", "", 0), lt.Account("team", "lab", 0), lt.Account("idle", "lab", 0), lt.Rate(), lt.Grant("g", "team", 1e9), lt.Grant("l", "lab", 1e9),
		lt.Hold("old", "lab", 1, 60), lt.Hold("job", "team", 20, 1e6), lt.Hold("given-up", "team", 1, 60),
		lt.Allocate("ancient", "old", "lab", 1), lt.Bound("ancient"))
	f.clock.SetTime(lt.At(100_000))
	f.do(lt.End("ancient", 0, 60), lt.Allocate("ended", "job", "team", 8), lt.Bound("ended"), lt.Allocate("running", "job", "team", 4), lt.Bound("running"),
		lt.Allocate("never", "given-up", "team", 1))
	f.clock.SetTime(lt.At(101_500))
	f.do(lt.End("ended", 100_000, 101_000), lt.Allocate("intended", "job", "team", 2))

	const hour, minute = 3600.0, 60.0
	fade := func(seconds, halfLife float64) float64 { return math.Exp2(-seconds / halfLife) }
	at := 102_000.0
	// never is intended since 100,000 s: its GPU is kept from others until it is given up.
	want := func(h float64) float64 {
		return 8*(fade(at-101_000, h)-fade(at-100_000, h)) + 4*(1-fade(at-100_000, h)) + 2*(1-fade(at-101_500, h)) + (1 - fade(at-100_000, h))
	}
	averages, err := f.as(cluster.SchedulerRole).AverageUse(t.Context(), lt.At(at), []time.Duration{time.Hour, time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, u := range averages {
		got[u.Account+" "+u.Class+" "+u.HalfLife.String()] = u.GPUs
	}
	for key, gpus := range map[string]float64{
		"lab " + lt.Class + " 1h0m0s":  fade(at-60, hour) - fade(at, hour),
		"team " + lt.Class + " 1m0s":   want(minute),
		"team " + lt.Class + " 1h0m0s": want(hour),
	} {
		if math.Abs(got[key]-gpus) > 1e-9 || got[key] == 0 {
			t.Errorf("%s: %v, want %v", key, got[key], gpus)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("beyond what is expected: %v", got)
	}
	if averages, err = f.store.AverageUse(t.Context(), lt.At(-1), []time.Duration{time.Hour}); err != nil || len(averages) != 0 {
		t.Errorf("before anything: %v %v", averages, err)
	}
}
