package gpubestfit

import (
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

// look returns the view. It is made anew about every hundred submitted pods, and when a candidate is not known yet; meanwhile it costs one look at each
// candidate's name. all lists the cluster's nodes.
func (l *learner) look(all func() ([]fwk.NodeInfo, error), candidates []fwk.NodeInfo) (view, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.knows(candidates) {
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

func (l *learner) knows(nodes []fwk.NodeInfo) bool {
	if l.pools == nil {
		return false
	}
	for _, node := range nodes {
		if _, known := l.pools.nodes[node.Node().Name]; !known {
			return false
		}
	}
	return true
}

// request is what a submitted pod asks for; false if it asks for no GPU, or its demand cannot be told.
func (l *learner) request(pod *corev1.Pod) (placement.Request, bool) {
	computed, err := stateOf(pod, l.catalog)
	if err != nil || computed == nil {
		return placement.Request{}, false
	}
	return requestOf(pod, computed, l.pools), true
}
