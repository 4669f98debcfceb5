package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// heartbeats remembers when each node last renewed its lease, also after the lease was deleted with its Node: that
// moment is where a lost node's allocations end.
type heartbeats struct {
	mu      sync.Mutex
	last    map[string]time.Time
	missing map[string]time.Time // node → when its Node object was first found missing
}

func newHeartbeats() *heartbeats {
	return &heartbeats{last: map[string]time.Time{}, missing: map[string]time.Time{}}
}

// note records a lease; renewals only go forward.
func (h *heartbeats) note(lease *coordinationv1.Lease) {
	if lease.Namespace != corev1.NamespaceNodeLease || lease.Spec.RenewTime == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[lease.Name] = latest(h.last[lease.Name], lease.Spec.RenewTime.UTC())
}

// complete adds to what the API server says of a node what was seen before.
func (h *heartbeats) complete(facts nodeFacts, node string, now time.Time) nodeFacts {
	h.mu.Lock()
	defer h.mu.Unlock()
	facts.lastRenewal = latest(facts.lastRenewal, h.last[node])
	if !facts.missing {
		delete(h.missing, node)
		return facts
	}
	if _, known := h.missing[node]; !known {
		h.missing[node] = now
	}
	facts.missingSince = h.missing[node]
	return facts
}

// retain forgets nodes that keep does not name.
func (h *heartbeats) retain(keep map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	forgotten := func(node string, _ time.Time) bool { return !keep[node] }
	maps.DeleteFunc(h.last, forgotten)
	maps.DeleteFunc(h.missing, forgotten)
}

// watch feeds the heartbeats from a Lease informer.
func (h *heartbeats) watch(ctx context.Context, informers cache.Cache) error {
	informer, err := informers.GetInformer(ctx, &coordinationv1.Lease{})
	if err != nil {
		return fmt.Errorf("watch node leases: %w", err)
	}
	note := func(object any) {
		if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		if lease, ok := object.(*coordinationv1.Lease); ok {
			h.note(lease)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, object any) { note(object) }, DeleteFunc: note,
	})
	if err != nil {
		return fmt.Errorf("watch node leases: %w", err)
	}
	return nil
}

// NodeMonitor asks about a node's pods when the node falls silent, comes back, is lost, or goes. It implements
// manager.Runnable and runs on the leader.
type NodeMonitor struct {
	cluster    cluster
	placed     *placements
	heartbeats *heartbeats
	pods       inbox[PodKey]
	grace      time.Duration
	clock      clock.WithTicker
	logger     logr.Logger
}

// NeedLeaderElection is true.
func (m *NodeMonitor) NeedLeaderElection() bool { return true }

// Start looks until ctx ends.
func (m *NodeMonitor) Start(ctx context.Context) error {
	ticker := m.clock.NewTicker(lookEvery(m.grace))
	defer ticker.Stop()
	before := map[string]nodeCondition{}
	for {
		next, err := m.look(ctx, before)
		if err != nil {
			m.logger.Error(err, "Nodes could not be looked at; silence may be noticed late")
		} else {
			before = next
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// lookEvery is a tenth of the grace, so that silence is noticed at most a tenth late, and at least a second: each look
// reads every node with GPU pods from memory.
func lookEvery(grace time.Duration) time.Duration { return max(time.Second, grace/10) }

// nodeCondition is what a pod's decision depends on.
type nodeCondition struct{ silent, lost, missing bool }

// look compares each node that carries pods with the round before, and asks about the pods of those that changed.
func (m *NodeMonitor) look(ctx context.Context, before map[string]nodeCondition) (map[string]nodeCondition, error) {
	now := m.clock.Now()
	next := map[string]nodeCondition{}
	for _, node := range m.placed.nodes() {
		facts, err := m.cluster.node(ctx, node)
		if err != nil {
			return nil, err
		}
		facts = m.heartbeats.complete(facts, node, now)
		condition := nodeCondition{silent: facts.silent(now, m.grace), lost: facts.lost(now, m.grace), missing: facts.missing}
		next[node] = condition
		if condition == before[node] {
			continue
		}
		m.logger.Info("Node changed for its pods", "node", node, "silent", condition.silent, "lost", condition.lost, "missing", condition.missing)
		for _, key := range m.placed.on(node) {
			m.pods.put(ctx, key)
		}
	}
	return next, nil
}

// placements say which GPU pods the watch shows on which node.
type placements struct {
	mu     sync.Mutex
	byNode map[string]map[PodKey]struct{}
	byPod  map[PodKey]string
}

func newPlacements() *placements {
	return &placements{byNode: map[string]map[PodKey]struct{}{}, byPod: map[PodKey]string{}}
}

// put records where a pod is; a pod that is bound stays where it is.
func (p *placements) put(key PodKey, node string) {
	if node == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byPod[key] = node
	if p.byNode[node] == nil {
		p.byNode[node] = map[PodKey]struct{}{}
	}
	p.byNode[node][key] = struct{}{}
}

func (p *placements) remove(key PodKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	node := p.byPod[key]
	delete(p.byPod, key)
	delete(p.byNode[node], key)
	if len(p.byNode[node]) == 0 {
		delete(p.byNode, node)
	}
}

func (p *placements) nodes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.byNode))
}

func (p *placements) on(node string) []PodKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.byNode[node]))
}
