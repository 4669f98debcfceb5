package path_test

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// ranFor is how long the worked example's pod runs, of at most 600 s.
const ranFor = 420 * time.Second

// story is the worked example of the documentation for one account: a Job of one pod with four GPUs, at most 600 s, that
// ends after 420 s. Its node reports in uneven pieces, some twice, one late.
type story struct {
	w    *world
	name string // account, namespace, Job and node
	node *node
	job  *batchv1.Job
	pod  *corev1.Pod
	// started is the pod's start on its node. The example is told in seconds, so it lies in the past.
	started time.Time
}

func (w *world) newStory(t *testing.T, name string) *story {
	t.Helper()
	w.enrol(t, name, "10000")
	return &story{w: w, name: name, node: w.newNode(t, name)}
}

// gpuJob is a Job that runs on the story's own node.
func (s *story) gpuJob() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "train"},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To(int32(0)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: ptr.To(int64(600)),
				NodeSelector: map[string]string{corev1.LabelHostname: s.name},
				Containers: []corev1.Container{{Name: "main", Image: "none.invalid/train", Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{gpuResource: resource.MustParse("4")},
				}}},
			}},
		},
	}
}

// submit creates the Job. It is refused while the webhook is away, so it is tried again, as its user would.
func (s *story) submit(t *testing.T) {
	t.Helper()
	eventually(t, "the Job is created", func(ctx context.Context) bool {
		s.job = s.gpuJob()
		return s.w.client.Create(ctx, s.job) == nil
	})
}

// placed waits until the Job's pod is bound to the story's node.
func (s *story) placed(t *testing.T) {
	t.Helper()
	eventually(t, "the pod is bound", func(ctx context.Context) bool {
		s.pod = s.onlyPod(ctx)
		return s.pod != nil && s.pod.Spec.NodeName == s.name
	})
}

func (s *story) onlyPod(ctx context.Context) *corev1.Pod {
	var pods corev1.PodList
	if err := s.w.client.List(ctx, &pods, client.InNamespace(s.name)); err != nil || len(pods.Items) != 1 {
		return nil
	}
	return &pods.Items[0]
}

// run starts the pod and reports what an agent has measured until now, some of it twice.
func (s *story) run(t *testing.T) {
	t.Helper()
	s.start(t)
	s.meter(t)
}

func (s *story) start(t *testing.T) {
	t.Helper()
	s.started = time.Now().Add(-ranFor).Truncate(time.Second)
	s.node.run(t, s.pod, s.started)
	s.reaches(t, ledger.AllocationMetering)
}

func (s *story) meter(t *testing.T) {
	t.Helper()
	s.node.report(t, s.pod, s.started, piece{0, 60}, piece{60, 137})
	s.node.report(t, s.pod, s.started, piece{60, 137}, piece{300, 420})
}

func (s *story) reaches(t *testing.T, state ledger.AllocationState) {
	t.Helper()
	eventually(t, "the allocation is "+string(state), func(ctx context.Context) bool {
		row, found, err := s.w.ledger.Allocation(ctx, string(s.pod.UID))
		return err == nil && found && row.State == state
	})
}

// finish ends the pod.
func (s *story) finish(t *testing.T) {
	t.Helper()
	s.node.finish(t, s.pod, s.started, s.started.Add(ranFor), 0)
}

// settled waits for the settlement, and then reports the piece that was late, and one again.
func (s *story) settled(t *testing.T) {
	t.Helper()
	s.closes(t, ledger.Settled)
	s.node.report(t, s.pod, s.started, piece{137, 300}, piece{0, 60})
}

func (s *story) closes(t *testing.T, state ledger.ReservationState) {
	t.Helper()
	eventually(t, "the reservation is "+string(state), func(ctx context.Context) bool {
		row, found, err := s.w.ledger.Reservation(ctx, string(s.job.UID))
		return err == nil && found && row.State == state
	})
}

// expect compares the account's row with the worked example's table.
func (s *story) expect(t *testing.T, moment string, balance, reserved, available int64) {
	t.Helper()
	row, _, err := s.w.ledger.Account(t.Context(), s.name)
	must(t, err)
	got := [3]ledger.Microcredits{row.Balance, row.Reserved, row.Available()}
	want := [3]ledger.Microcredits{
		ledger.Microcredits(balance) * ledger.Credit, ledger.Microcredits(reserved) * ledger.Credit, ledger.Microcredits(available) * ledger.Credit,
	}
	if got != want {
		t.Errorf("%s: balance, reserved, available are %v, want %v", moment, got, want)
	}
}
