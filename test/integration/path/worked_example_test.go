package path_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

// tellUndisturbed tells the story with nothing going wrong, checks the table of the worked example at each moment, and
// returns the ledger that it leaves.
func tellUndisturbed(t *testing.T, w *world, name string) string {
	t.Helper()
	s := w.newStory(t, name)
	s.expect(t, "start", 10000, 0, 10000)
	s.submit(t)
	s.expect(t, "Job created", 10000, 2400, 7600)
	s.placed(t)
	s.run(t)
	s.finish(t)
	s.settled(t)
	s.expect(t, "pod ended after 420 s", 8320, 0, 8320)

	reservation, _, err := w.ledger.Reservation(t.Context(), string(s.job.UID))
	must(t, err)
	if reservation.Charged != 1680*ledger.Credit || reservation.Amount != 2400*ledger.Credit {
		t.Errorf("charged %d of %d microcredits held, want 1,680 and 2,400 credits", reservation.Charged, reservation.Amount)
	}
	s.showsInKubectl(t)
	s.statementAddsUp(t)
	s.podMayGo(t)
	w.audit(t)
	return s.snapshot(t)
}

// showsInKubectl: what `kubectl get creditaccounts` prints follows the ledger.
func (s *story) showsInKubectl(t *testing.T) {
	t.Helper()
	eventually(t, "the account's status shows the settlement", func(ctx context.Context) bool {
		var account v1alpha1.CreditAccount
		if err := s.w.client.Get(ctx, client.ObjectKey{Name: s.name}, &account); err != nil {
			return false
		}
		status := account.Status
		return status.Available == "8320" && status.Reserved == "0" && status.Charged == "1680" && status.Balance == "8320"
	})
}

func (s *story) statementAddsUp(t *testing.T) {
	t.Helper()
	statement, err := s.w.ledger.Statement(t.Context(), s.name, time.Time{}, time.Now().Add(time.Minute))
	must(t, err)
	sum := statement.Opening
	for _, line := range statement.Lines {
		sum += line.Amount
	}
	if statement.Opening != 0 || sum != statement.Closing || statement.Closing != 8320*ledger.Credit {
		t.Errorf("the statement opens with %d, its lines sum to %d, it closes with %d", statement.Opening, sum, statement.Closing)
	}
	var text strings.Builder
	must(t, statement.Send(ledger.StatementText{}.Sink(&text)))
	for _, want := range []string{"10,000", "1,680", "8,320"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the statement does not say %s:\n%s", want, text.String())
		}
	}
}

// podMayGo: once its time is settled, nothing keeps the pod's object.
func (s *story) podMayGo(t *testing.T) {
	t.Helper()
	must(t, client.IgnoreNotFound(s.w.client.Delete(t.Context(), s.pod, client.GracePeriodSeconds(0))))
	eventually(t, "the pod is gone", func(ctx context.Context) bool {
		return apierrors.IsNotFound(s.w.client.Get(ctx, client.ObjectKeyFromObject(s.pod), &corev1.Pod{}))
	})
}
