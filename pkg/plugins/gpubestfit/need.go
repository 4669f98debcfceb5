package gpubestfit

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/plugins/catalog"
)

// need is what a pod asks of a node's labels.
type need struct {
	class        string
	nodeSelector map[string]string // the class's
	memoryMiB    int64             // of each GPU; 0 for any
}

// memoryOf reads the least GPU memory from a pod's labels, in MiB rounded up; 0 if it names none.
func memoryOf(podLabels map[string]string) (int64, error) {
	text, set := podLabels[v1alpha1.MemoryLabel]
	if !set {
		return 0, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil || quantity.Sign() <= 0 {
		return 0, fmt.Errorf("label %s is %q, not an amount of memory; set one such as 40Gi, or remove it", v1alpha1.MemoryLabel, text)
	}
	return (quantity.Value() + 1<<20 - 1) >> 20, nil
}

// refusal says why a node with these labels does not serve the need; empty if it does.
func (n *need) refusal(nodeLabels map[string]string) string {
	if !catalog.OfClass(nodeLabels, n.nodeSelector) {
		return "node(s) are not of GPU class " + n.class
	}
	if n.memoryMiB == 0 {
		return ""
	}
	stated, err := strconv.ParseInt(nodeLabels[v1alpha1.NodeMemoryLabel], 10, 64)
	switch {
	case err != nil:
		return fmt.Sprintf("node(s) do not state their GPUs' memory (label %s)", v1alpha1.NodeMemoryLabel)
	case stated < n.memoryMiB:
		return fmt.Sprintf("node(s) have GPUs of less than %d MiB", n.memoryMiB)
	}
	return ""
}
