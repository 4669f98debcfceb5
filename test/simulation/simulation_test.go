package simulation_test

import (
	"flag"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/gpubank/gpubank/test/cluster/clustertest"
	"github.com/gpubank/gpubank/test/simulation"
)

var (
	seed     = flag.Uint64("seed", 0, "simulate this seed alone; 0 for the fixed one and a random one")
	commands = flag.Int("commands", 50_000, "commands to simulate, over all seeds")
)

func TestMain(m *testing.M) {
	simulation.ServeChild() // does not return in a process that was started as a writer
	clustertest.Main(m)
}

// fixedSeed is lived through in every test run; beside it one that is different each time.
const fixedSeed = 1

func TestSimulation(t *testing.T) {
	if *seed != 0 {
		simulate(t, *seed, *commands)
		return
	}
	for _, each := range []uint64{fixedSeed, rand.Uint64N(1_000_000_000) + 1} {
		simulate(t, each, *commands/2)
	}
}

func simulate(t *testing.T, seed uint64, commands int) {
	plan := simulation.NewPlan(seed, commands)
	t.Logf("seed %d; to repeat: %s", seed, plan.Reproduce())
	report, err := simulation.Run(t.Context(), plan, simulation.Options{Postgres: clustertest.OwnPostgres(t)})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	t.Logf("seed %d: %s; %d reservations, %d allocations, %d entries; %s under faults, %s to check", seed, report.Counts,
		report.Reservations, report.Allocations, report.Entries, report.Took, report.Checked)
	t.Logf("seed %d: refusals: %v", seed, report.Counts.Refusals)
	for _, v := range report.Violations {
		t.Errorf("seed %d: %s", seed, v)
	}
	if t.Failed() {
		t.Errorf("to repeat the same commands and faults (PostgreSQL may interleave them differently): %s", plan.Reproduce())
	}
}

// The same seed is the same plan, another one is another.
func TestPlanIsAFunctionOfItsSeed(t *testing.T) {
	t.Parallel()
	one, same, other := simulation.NewPlan(7, 3_000), simulation.NewPlan(7, 3_000), simulation.NewPlan(8, 3_000)
	if !reflect.DeepEqual(one, same) {
		t.Error("the same seed made two different plans")
	}
	if reflect.DeepEqual(one.Lanes[0], other.Lanes[0]) {
		t.Error("two seeds made the same commands")
	}
}
