package admission_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/test/cluster"
)

// What kubectl credit quote says of a file, admission then does with it, word for word; and quoting writes nothing. It needs
// no more than the reader's rights on the ledger.
func testQuote(t *testing.T, s *suite) {
	ctx := t.Context()
	s.enrol(t, "quoted", 1_000*ledger.Credit)
	must(t, s.CreateNamespace(ctx, "unenrolled", nil))
	dir := t.TempDir()
	binary, reader := filepath.Join(dir, "kubectl-credit"), filepath.Join(dir, "reader-url")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/kubectl-credit")
	build.Dir = repository
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build kubectl-credit: %v\n%s", err, output)
	}
	must(t, cluster.WriteURLFile(reader, s.postgres.URLAs(cluster.ReaderRole, "ledger")))

	kubeconfig, err := s.UserKubeconfig("quoter", "alice", "system:masters")
	must(t, err)

	for i, c := range []struct {
		object client.Object
		status int
		says   string
	}{
		{newJob("quoted", "affordable", "4", 250), 0, "at most 1,000 credits, this Job"},
		{newJob("quoted", "unaffordable", "4", 251), 3, "refused by a limit of account quoted: 4 credits too little"},
		{newJob("quoted", "several", "1", 100, func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](2), ptr.To[int32](20) }), 3, "2,000 credits"},
		{newPod("quoted", "shell", spec(limits("nvidia.com/gpu", "1"))), 0, "at most 100 credits, this Pod"},
		{newPod("quoted", "unknown", spec(limits("amd.com/gpu", "1"))), 3, "would NOT be admitted"},
		{newPod("quoted", "elsewhere", spec(limits("nvidia.com/gpu", "1")), func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }), 3, `not by "mine"`},
		{newJob("quoted", "processor", "0", 10), 0, "it asks for no GPU"},
		{newJob("unenrolled", "free", "8", 10), 0, "no account pays for its"},
	} {
		object := c.object
		switch object := object.(type) {
		case *batchv1.Job:
			object.APIVersion, object.Kind = "batch/v1", "Job"
		case *corev1.Pod:
			object.APIVersion, object.Kind = "v1", "Pod"
		}
		content, err := json.Marshal(object)
		must(t, err)
		file := filepath.Join(dir, fmt.Sprintf("%d.json", i))
		must(t, os.WriteFile(file, content, 0o600))
		before := s.reserved(t, "quoted")
		output, err := exec.CommandContext(ctx, binary, "quote", "-f", file, "--kubeconfig="+kubeconfig, "--database-url-file="+reader).CombinedOutput()
		status := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			status = exit.ExitCode()
		}
		said := strings.Join(strings.Fields(string(output)), " ")
		if status != c.status || !strings.Contains(said, c.says) {
			t.Errorf("%s: status %d, want %d and %q\n%s", object.GetName(), status, c.status, c.says, output)
		}
		if s.reserved(t, "quoted") != before {
			t.Errorf("%s: the quote set credits aside", object.GetName())
		}
		err = s.admin.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
		if (err == nil) != (status == 0) || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: quoted with status %d, and admission says %v", object.GetName(), status, err)
		}
		if err != nil {
			_, reason, _ := strings.Cut(err.Error(), "denied the request: ")
			if !strings.Contains(said, reason) {
				t.Errorf("%s: admission says\n%s\nthe quote says\n%s", object.GetName(), reason, said)
			}
		}
		t.Logf("%s", output)
	}
}
