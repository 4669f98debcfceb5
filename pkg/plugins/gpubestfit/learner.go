package gpubestfit

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpubank/gpubank/pkg/placement"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
)

// view is what a scheduling cycle knows beyond its pod and a node. It is never written again.
type view struct {
	pools   *pools
	outlook *placement.Outlook
}

// learner keeps the view, which follows what is submitted and what the nodes have free.
type learner struct {
	catalog     *catalog.Catalog
	submissions submissions

	mu       sync.Mutex
	forecast *placement.Forecast
	pools    *pools
}

func newLearner(objects *catalog.Catalog) *learner {
	return &learner{catalog: objects, forecast: placement.NewForecast()}
}

// look returns the view for a pod that asks for a resource, empty for one without GPUs. It is made anew about every hundred
// submitted pods, and when a candidate, or what it has of the resource, is not known yet; meanwhile it costs one look at each
// candidate's name. all lists the cluster's nodes.
func (l *learner) look(all func() ([]fwk.NodeInfo, error), candidates []fwk.NodeInfo, resource corev1.ResourceName) (view, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.knows(candidates, resource) {
		nodes, err := all()
		if err != nil {
			return view{}, err
		}
		l.pools = poolsOf(nodes, l.catalog.Classes(), l.pools)
		l.forecast.NodesChanged()
	}
	for _, each := range l.submissions.take() {
		if request, ok := l.request(each.pod); ok {
			l.forecast.Observe(request)
		}
	}
	if l.forecast.Due() {
		nodes, err := all()
		if err != nil {
			return view{}, err
		}
		// Classes and labels may have changed, too.
		l.pools = poolsOf(nodes, l.catalog.Classes(), l.pools)
		l.forecast.Outlook(func() []placement.Node { return l.pools.free(nodes) })
	}
	return view{l.pools, l.forecast.Outlook(nil)}, nil
}

func (l *learner) knows(nodes []fwk.NodeInfo, resource corev1.ResourceName) bool {
	if l.pools == nil {
		return false
	}
	for _, node := range nodes {
		devices, known := l.pools.nodes[node.Node().Name]
		if !known {
			return false
		}
		// A node may appear before its devices do, and before its class.
		if resource != "" && !slices.ContainsFunc(devices, func(d pooled) bool { return d.resource == resource }) {
			return false
		}
	}
	return true
}

// request is what a submitted pod asks for; false if it asks for no GPU, its demand cannot be told, or no node is large enough for it: what
// can never be placed is nothing to keep room for.
func (l *learner) request(pod *corev1.Pod) (placement.Request, bool) {
	computed, err := stateOf(pod, l.catalog)
	if err != nil || computed == nil || computed.demand.GPUs > l.pools.largest[corev1.ResourceName(computed.demand.Resource)] {
		return placement.Request{}, false
	}
	return requestOf(pod, computed, l.pools), true
}
