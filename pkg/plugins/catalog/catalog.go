package catalog

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// Catalog is safe for use by several goroutines. The zero value is not ready; use New.
type Catalog struct {
	mu       sync.RWMutex
	accounts map[string]account
	classes  map[string]v1alpha1.GPUClass
	// listed is classes in the order of their names, replaced as a whole: readers keep it without a lock.
	listed []v1alpha1.GPUClass
	// change numbers the latest change, classesChanged the latest of any class.
	change, classesChanged int64
	// tree is derived from accounts, and nil after a change of them.
	tree *tree
}

type account struct {
	object  *v1alpha1.CreditAccount
	changed int64
}

// New returns an empty catalog.
func New() *Catalog {
	return &Catalog{accounts: map[string]account{}, classes: map[string]v1alpha1.GPUClass{}}
}

// Classes returns all classes. The caller must not modify them.
func (c *Catalog) Classes() []v1alpha1.GPUClass {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.listed
}

// Class returns one class. The caller must not modify it.
func (c *Catalog) Class(name string) (v1alpha1.GPUClass, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	class, found := c.classes[name]
	return class, found
}

// OfClass reports whether a node's labels satisfy a class's node selector.
func OfClass(nodeLabels, selector map[string]string) bool {
	for key, want := range selector {
		if got, set := nodeLabels[key]; !set || got != want {
			return false
		}
	}
	return true
}

// Free is what no pod has requested of a resource on a node.
func Free(node fwk.NodeInfo, resource string) int64 {
	name := corev1.ResourceName(resource)
	return node.GetAllocatable().GetScalarResources()[name] - node.GetRequested().GetScalarResources()[name]
}

// Account returns one account, or nil. The caller must not modify it.
func (c *Catalog) Account(name string) *v1alpha1.CreditAccount {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.accounts[name].object
}

// Accounts returns all accounts, in no order. The caller must not modify them.
func (c *Catalog) Accounts() []*v1alpha1.CreditAccount {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*v1alpha1.CreditAccount, 0, len(c.accounts))
	for _, entry := range c.accounts {
		all = append(all, entry.object)
	}
	return all
}

// Change is the number of the latest change, for ChangedSince.
func (c *Catalog) Change() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.change
}

// ChangedSince reports whether a class, or an account in the same tree as name, has changed after the change of that number. The
// whole tree counts, because a sibling that gives credits back makes room under the common parent's limit.
func (c *Catalog) ChangedSince(name string, change int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	tree := c.treeView()
	return c.classesChanged > change || tree.changed[tree.rootOf(name)] > change
}

// SameTree reports whether two accounts share a root.
func (c *Catalog) SameTree(a, b string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	tree := c.treeView()
	return tree.rootOf(a) == tree.rootOf(b)
}

// Affordable reports whether, by this view, the account that pays for this one's workloads and every account above it would let
// needed be reserved (I1).
// What is not known is taken for affordable: the ledger will tell.
func (c *Catalog) Affordable(name string, needed ledger.Microcredits) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	room, known := c.treeView().room[name]
	return !known || room >= needed
}

// MayRunMore reports whether, by this view, neither the account nor any above it runs as many jobs as its limit allows.
// What is not known is taken for a yes: the ledger will tell.
func (c *Catalog) MayRunMore(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.treeView().full[name]
}

// treeView returns the derived view, computed again only after a change.
func (c *Catalog) treeView() *tree {
	if c.tree == nil {
		c.tree = treeOf(c.accounts)
	}
	return c.tree
}

// SetAccount takes over a new state of an account, and reports whether it could matter to a waiting pod.
func (c *Catalog) SetAccount(object *v1alpha1.CreditAccount) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.accounts[object.Name]
	changed := old.changed
	if old.object == nil || !sameForPods(old.object, object) {
		c.change++
		changed = c.change
	}
	c.accounts[object.Name] = account{object: object, changed: changed}
	c.tree = nil
	return changed != old.changed
}

// RemoveAccount forgets an account.
func (c *Catalog) RemoveAccount(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.accounts, name)
	c.tree = nil
	c.change++
}

// SetClass takes over a new state of a class.
func (c *Catalog) SetClass(class v1alpha1.GPUClass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.classes[class.Name]
	c.classes[class.Name] = class
	c.relist()
	if !known || !equality.Semantic.DeepEqual(old.Spec, class.Spec) || old.Status.RateVersion != class.Status.RateVersion {
		c.change++
		c.classesChanged = c.change
	}
}

// RemoveClass forgets a class.
func (c *Catalog) RemoveClass(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.classes, name)
	c.relist()
	c.change++
	c.classesChanged = c.change
}

func (c *Catalog) relist() {
	listed := make([]v1alpha1.GPUClass, 0, len(c.classes))
	for _, name := range slices.Sorted(maps.Keys(c.classes)) {
		listed = append(listed, c.classes[name])
	}
	c.listed = listed
}

// sameForPods compares what a waiting pod could wait for: not the conditions, whose times move by themselves.
func sameForPods(a, b *v1alpha1.CreditAccount) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.Status.Conditions, b.Status.Conditions = nil, nil
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Status, b.Status)
}
