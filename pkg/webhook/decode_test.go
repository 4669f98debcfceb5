package webhook

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// What is decoded is what the library's decoder, which looks for the kind first, makes of the same bytes.
func TestDecodeAsTheLibraryDoes(t *testing.T) {
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	library := admission.NewDecoder(scheme)
	for name, c := range map[string]struct {
		kind metav1.GroupVersionKind
		into runtime.Object
		raw  string
	}{
		"job": {jobKind, &batchv1.Job{}, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a","uid":"u","creationTimestamp":"2026-11-30T08:00:00Z",
			"managedFields":[{"manager":"m","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]},
			"spec":{"parallelism":3,"template":{"spec":{"containers":[{"name":"c","resources":{"limits":{"nvidia.com/gpu":"2","cpu":1.5}}}],
			"unknownToThisBuild":{"a":[1]},"activeDeadlineSeconds":9007199254740993}}},"status":{}}`},
		"pod": {podKind, &corev1.Pod{}, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":{"Containers":[{"name":"not this one"}],
			"containers":[{"name":"c","resources":{"requests":{"amd.com/gpu":1}}}],"schedulerName":"x","schedulerName":"y"}}`},
		"neither version nor kind": {podKind, &corev1.Pod{TypeMeta: metav1.TypeMeta{}}, `{"metadata":{"name":"p"}}`},
	} {
		request := admission.Request{}
		request.Kind, request.Namespace, request.Object.Raw = c.kind, "team", []byte(c.raw)
		got, err := decode(request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := library.Decode(request, c.into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.into.(metav1.Object).SetNamespace("team")
		if !equality.Semantic.DeepEqual(got, c.into) {
			t.Errorf("%s: decoded\n%+v, the library\n%+v", name, got, c.into)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	other := metav1.GroupVersionKind{Group: "batch.volcano.sh", Version: "v1alpha1", Kind: "Job"}
	for name, c := range map[string]struct {
		kind metav1.GroupVersionKind
		raw  string
		says string
	}{
		"another group's Job": {other, `{}`, "correct the webhook configuration"},
		"no object":           {jobKind, ``, "decode Job team/x"},
		"half an object":      {podKind, `{"spec":`, "decode Pod team/x"},
		"text for a number":   {jobKind, `{"spec":{"parallelism":"3"}}`, "decode Job team/x"},
		"an impossible size":  {jobKind, `{"spec":{"parallelism":99999999999}}`, "decode Job team/x"},
	} {
		request := admission.Request{}
		request.Kind, request.Namespace, request.Name, request.Object.Raw = c.kind, "team", "x", []byte(c.raw)
		if got, err := decode(request); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v; want an error saying %q", name, got, err, c.says)
		}
	}
}
