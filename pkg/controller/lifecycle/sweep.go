package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// sweepTimeout bounds reading what is open; at ten thousand open allocations it takes well under a second.
const sweepTimeout = 30 * time.Second

// sweepRetry is the wait after a sweep that could not read the ledger.
const sweepRetry = 5 * time.Second

// OpenLister is what the sweeper needs of the store.
type OpenLister interface {
	// OpenAllocations returns those that may still hold GPUs.
	OpenAllocations(ctx context.Context) ([]ledger.Allocation, error)
	// OpenReservations returns those that still set credits aside.
	OpenReservations(ctx context.Context) ([]ledger.Reservation, error)
}

// Sweeper asks, at start and every resync, about everything that the ledger holds open. Events only make things
// faster; what happened while no controller ran, and events that were lost, are found here. It implements
// manager.Runnable and runs on the leader.
type Sweeper struct {
	ledger    OpenLister
	cached    client.Reader
	pods      *PodReconciler
	podInbox  inbox[PodKey]
	workloads inbox[WorkloadKey]
	resync    time.Duration
	clock     clock.Clock
	logger    logr.Logger
	metrics   *metrics
}

// NeedLeaderElection is true.
func (s *Sweeper) NeedLeaderElection() bool { return true }

// Start sweeps until ctx ends.
func (s *Sweeper) Start(ctx context.Context) error {
	for {
		wait := s.resync
		if err := s.sweep(ctx); err != nil {
			s.logger.Error(err, "Sweep over what the ledger holds open failed; trying again soon")
			wait = sweepRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.clock.After(wait):
		}
	}
}

func (s *Sweeper) sweep(ctx context.Context) error {
	read, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	allocations, err := s.ledger.OpenAllocations(read)
	if err != nil {
		return fmt.Errorf("read open allocations: %w", err)
	}
	reservations, err := s.ledger.OpenReservations(read)
	if err != nil {
		return fmt.Errorf("read open reservations: %w", err)
	}
	s.metrics.showOpen(allocations, reservations)
	for _, allocation := range allocations {
		s.podInbox.put(ctx, podKeyOf(allocation))
	}
	for _, reservation := range reservations {
		s.workloads.put(ctx, WorkloadKey{UID: reservation.UID})
	}
	s.pods.forgetOldSights(s.clock.Now())
	return s.forgetNodes(ctx, allocations)
}

// forgetNodes drops the heartbeats of nodes that are gone and that no open allocation is on.
func (s *Sweeper) forgetNodes(ctx context.Context, allocations []ledger.Allocation) error {
	nodes := &corev1.NodeList{}
	if err := s.cached.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	keep := map[string]bool{}
	for i := range nodes.Items {
		keep[nodes.Items[i].Name] = true
	}
	for _, allocation := range allocations {
		keep[allocation.Node] = true
	}
	s.pods.heartbeats.retain(keep)
	return nil
}
