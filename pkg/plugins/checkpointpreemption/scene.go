package checkpointpreemption

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
	"github.com/gpubank/gpubank/pkg/plugins/checkpointpreemption/victims"
	"github.com/gpubank/gpubank/pkg/workload"
)

// scene is what one decision is made on: the preemptor, and the cluster as it was when the decision began. It is read by several
// goroutines and changed by none.
type scene struct {
	pl       *CheckpointPreemption
	pod      *corev1.Pod
	requests fwk.Resource
	priority int32
	demand   workload.Demand
	account  string
	now      int64 // seconds since 1970
	policy   victims.Policy

	nodes  map[string]*nodeFacts
	spaces map[string]space // by namespace
	book   *victims.Book
	groups map[string]*group
	// ownGroup is the preemptor's, "" if it has none.
	ownGroup string
	guards   map[string]guard // by account
	budgets  map[string][]disruptionBudget
}

// space is what is known of a namespace.
type space struct {
	account string // "" if nobody pays
	kueue   bool   // Kueue manages what names a queue there
}

// group is pods that stop together, wherever they are.
type group struct {
	pods []*podFacts
	// stays is true if one of them may not be taken, so that none is.
	stays bool
}

// guard is what protects an account from the preemptor.
type guard struct {
	accounts []string
	own      bool
	// reclaims: its borrowed GPUs may be taken whatever the priority.
	reclaims bool
}

// disruptionBudget is one with a selector that can be asked.
type disruptionBudget struct {
	object   *policyv1.PodDisruptionBudget
	selector labels.Selector
}

// gather looks at the whole cluster once.
func (pl *CheckpointPreemption) gather(ctx context.Context, pod *corev1.Pod, requests fwk.Resource, demand workload.Demand) (*scene, error) {
	s := &scene{
		pl: pl, pod: pod, requests: requests, priority: corev1helpers.PodPriority(pod), demand: demand,
		now: pl.clock.Now().Unix(), policy: pl.policy,
		spaces: map[string]space{}, groups: map[string]*group{}, guards: map[string]guard{}, budgets: map[string][]disruptionBudget{},
	}
	nodes, err := pl.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fmt.Errorf("list nodes to choose whom to stop: %w", err)
	}
	s.account, s.ownGroup = s.space(pod.Namespace).account, pl.together.group(pod)
	pl.memory.keep(nodes)
	s.nodes = make(map[string]*nodeFacts, len(nodes))
	found := make([]*nodeFacts, len(nodes))
	pl.handle.Parallelizer().Until(ctx, len(nodes), func(i int) { found[i] = pl.memory.of(nodes[i], s.policy) }, Name)
	if err := ctx.Err(); err != nil { // and not all have been looked at
		return nil, fmt.Errorf("look at all nodes to choose whom to stop: %w", err)
	}
	class, _ := pl.catalog.Class(demand.Class)
	s.open()
	for i, node := range nodes {
		s.nodes[node.Node().Name] = found[i]
		ofClass := catalog.OfClass(node.Node().Labels, class.Spec.NodeSelector)
		for j := range found[i].pods {
			s.see(&found[i].pods[j], ofClass)
		}
	}
	for account := range s.guards {
		s.guards[account] = s.guardOf(account)
	}
	if err := s.gatherBudgets(); err != nil {
		return nil, err
	}
	for _, g := range s.groups {
		g.stays = slices.ContainsFunc(g.pods, func(f *podFacts) bool { return !s.mayTake(f) })
	}
	return s, nil
}

// open begins the book of who may use how many GPUs of the preemptor's class.
func (s *scene) open() {
	s.book = victims.NewBook()
	for _, account := range s.pl.catalog.Accounts() {
		var guaranteed int64
		limited := false
		for _, limit := range account.Spec.Policy.GPUs {
			if limit.Class == s.demand.Class {
				guaranteed, limited = limit.Guaranteed, true
			}
		}
		s.book.Add(account.Name, account.Spec.Parent, guaranteed, limited)
	}
}

// see takes one running pod into account.
func (s *scene) see(f *podFacts, ofClass bool) {
	account := s.space(f.pod.Namespace).account
	s.guards[account] = guard{}
	if ofClass {
		s.book.Use(account, s.gpusOf(f))
	}
	if key := s.pl.together.group(f.pod); key != "" {
		g := s.groups[key]
		if g == nil {
			g = &group{}
			s.groups[key] = g
		}
		g.pods = append(g.pods, f)
	}
}

// gpusOf is how many GPUs of the kind that the preemptor asks for a pod holds.
func (s *scene) gpusOf(f *podFacts) int64 {
	return f.requests.GetScalarResources()[corev1.ResourceName(s.demand.Resource)]
}

func (s *scene) space(namespace string) space {
	if known, ok := s.spaces[namespace]; ok {
		return known
	}
	var found space
	if object, err := s.pl.namespaces.Get(namespace); err == nil {
		found.kueue = s.pl.kueue.Matches(labels.Set(object.Labels))
		if account := s.pl.catalog.Account(object.Labels[v1alpha1.AccountLabel]); account != nil && slices.Contains(account.Spec.Namespaces, namespace) {
			found.account = account.Name
		}
	}
	s.spaces[namespace] = found
	return found
}

func (s *scene) guardOf(account string) guard {
	var g guard
	g.accounts, g.own = s.book.Guards(s.account, account)
	g.reclaims = !g.own && s.book.Reclaims(s.account, account, s.demand.GPUs)
	return g
}

func (s *scene) gatherBudgets() error {
	all, err := s.pl.budgets.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list disruption budgets to choose whom to stop: %w", err)
	}
	slices.SortFunc(all, func(a, b *policyv1.PodDisruptionBudget) int { return compareUID(a.UID, b.UID) })
	for _, object := range all {
		selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
		if err != nil || selector.Empty() {
			continue // it selects nothing, as upstream has it
		}
		s.budgets[object.Namespace] = append(s.budgets[object.Namespace], disruptionBudget{object: object, selector: selector})
	}
	return nil
}

// mayTake reports whether the preemptor may have the pod stopped, leaving aside how much its account has borrowed and what stops with it.
func (s *scene) mayTake(f *podFacts) bool {
	if f.stoppingUntil != 0 {
		return s.awaited(f)
	}
	return !s.leftToKueue(f.pod) && !s.coolsDown(f) && (s.outranks(f) || s.reclaims(f))
}

// awaited reports whether a pod that is stopping is still believed to stop.
func (s *scene) awaited(f *podFacts) bool {
	return f.stoppingUntil != 0 && s.now < f.stoppingUntil+int64(s.pl.args.StopPatience.Seconds())
}

func (s *scene) outranks(f *podFacts) bool {
	return f.priority < s.priority && (!s.pl.args.OwnAccountOnly || s.space(f.pod.Namespace).account == s.account)
}

func (s *scene) reclaims(f *podFacts) bool {
	return s.gpusOf(f) > 0 && s.guards[s.space(f.pod.Namespace).account].reclaims
}

// reason is by what right the pod is stopped.
func (s *scene) reason(f *podFacts) ledger.PreemptionReason {
	if s.outranks(f) {
		return ledger.PreemptedByPriority
	}
	return ledger.PreemptedByReclaim
}

func (s *scene) leftToKueue(pod *corev1.Pod) bool {
	return s.space(pod.Namespace).kueue && s.pl.jobs.namesQueue(pod)
}

// coolsDown reports whether a pod is a young attempt at a workload that was stopped before it. A pod that was chosen and, because a scheduler
// died, not stopped is no such attempt.
func (s *scene) coolsDown(f *podFacts) bool {
	return f.started != 0 && s.now < f.started+int64(s.pl.args.Cooldown.Seconds()) && s.pl.lately.before(f.workload, f.pod.UID, f.started, s.now)
}
