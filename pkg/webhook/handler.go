package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/workload"
)

// answerWithin is how long a request may take. It is below the 10 s after which the API server gives up (timeoutSeconds in
// manifests/webhook), so that a person reads our reason and not "context deadline exceeded".
const answerWithin = 8500 * time.Millisecond

// Paths that the webhook configurations call.
const (
	MutateWorkloadPath   = "/mutate-workload"
	ValidateWorkloadPath = "/validate-workload"
	ValidateAccountPath  = "/validate-account"
)

// handler applies decisions: it places at most one hold and words the answer.
type handler struct {
	gatherer
	metrics *Metrics
	clock   clock.PassiveClock
	logger  logr.Logger
}

// outcome is a response and what to count it as.
type outcome struct {
	response admission.Response
	decision string // allowed, denied or error
	code     Code
}

// handle bounds, counts and logs what answer returns.
func (h *handler) handle(name string, answer func(context.Context, admission.Request) (outcome, error)) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		began := h.clock.Now()
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		result, err := answer(ctx, request)
		if err != nil {
			result = failed(err)
			h.logger.Error(err, "Admission request could not be decided", "webhook", name, "kind", request.Kind.Kind,
				"namespace", request.Namespace, "name", request.Name, "uid", request.UID, "user", request.UserInfo.Username)
		}
		result.response.AuditAnnotations = map[string]string{"decision": string(result.code)}
		h.metrics.observe(name, result.decision, result.code, h.clock.Since(began))
		return result.response
	})
}

// failed words the failures of others. None of them says anything about the workload or its account's credits.
func failed(err error) outcome {
	status := func(httpCode int32, reason metav1.StatusReason, code Code, message string) outcome {
		response := admission.Errored(httpCode, errors.New(message))
		response.Result.Reason = reason
		return outcome{response: response, decision: "error", code: code}
	}
	var ofLedger ledgerError
	var ofCluster clusterError
	switch {
	case errors.As(err, &ofLedger):
		return status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, LedgerAway,
			// The cause names the database's host; it is in our log.
			"Ledger: the credit ledger did not answer, so no credits could be set aside or looked up; nothing is wrong with the request or the account: "+
				"try again, and tell the cluster's operator if it lasts")
	case errors.As(err, &ofCluster):
		return status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, ClusterAway,
			"Cluster: gpubank's webhook could not read the API server, so the request was not decided; try again, and tell the cluster's operator if it lasts")
	}
	return status(http.StatusBadRequest, metav1.StatusReasonBadRequest, BadRequest, err.Error())
}

func answered(decision Decision) outcome {
	if decision.Allowed {
		return outcome{response: admission.Allowed(""), decision: "allowed", code: decision.Code}
	}
	return outcome{response: admission.Denied(decision.Message), decision: "denied", code: decision.Code}
}

func (h *handler) mutateWorkload(ctx context.Context, request admission.Request) (outcome, error) {
	object, err := decode(request)
	if err != nil {
		return outcome{}, err
	}
	facts, err := h.facts(ctx, request.Namespace, request.UserInfo.Username, templateOf(object))
	if err != nil {
		return outcome{}, err
	}
	var mutation Mutation
	switch object := object.(type) {
	case *batchv1.Job:
		mutation = MutateJob(facts, object)
	case *corev1.Pod:
		mutation = MutatePod(facts, object)
	}
	code := NoGPUs
	if len(mutation.Patch) > 0 {
		code = Held
	}
	return outcome{
		response: admission.Patched("", mutation.Patch...).WithWarnings(mutation.Warnings...),
		decision: "allowed", code: code,
	}, nil
}

func (h *handler) validateWorkload(ctx context.Context, request admission.Request) (outcome, error) {
	object, err := decode(request)
	if err != nil {
		return outcome{}, err
	}
	facts, err := h.facts(ctx, request.Namespace, request.UserInfo.Username, templateOf(object))
	if err != nil {
		return outcome{}, err
	}
	if request.Operation == admissionv1.Update {
		return h.validateUpdate(ctx, request, facts, object)
	}
	var decision Decision
	switch object := object.(type) {
	case *batchv1.Job:
		decision = DecideJob(facts, object)
	case *corev1.Pod:
		if owner, ok := workload.JobOwner(object); ok && facts.Enrolled && facts.byJobController() {
			if facts.JobReservation, err = h.reservation(ctx, string(owner.UID)); err != nil {
				return outcome{}, err
			}
		}
		decision = DecidePod(facts, object)
	}
	if decision.Hold == nil {
		return answered(decision), nil
	}
	// The ledger's own word on its policy: a hold must not depend on which of the two heard of a change first.
	account, _, err := h.ledger.Account(ctx, facts.AccountName)
	if err != nil {
		return outcome{}, ledgerError{fmt.Errorf("read account %s: %w", facts.AccountName, err)}
	}
	dryRun := request.DryRun != nil && *request.DryRun
	decision = Later(account.Policy.HoldAt, facts, object, decision)
	switch {
	case decision.Hold == nil:
		return answered(decision), nil
	case decision.Hold.Later != "":
		return h.checkForLater(ctx, decision, dryRun)
	}
	return h.placeHold(ctx, decision.Hold, dryRun)
}

// checkForLater asks what the ledger would say to a hold that is placed later, and sets nothing aside.
func (h *handler) checkForLater(ctx context.Context, decision Decision, dryRun bool) (outcome, error) {
	answer, err := askForLater(ctx, h.ledger, decision.Hold, dryRun)
	if err != nil {
		return outcome{}, err
	}
	result := answered(answer.decision)
	result.response = result.response.WithWarnings(answer.warnings...)
	return result, nil
}

// placeHold asks the ledger, whose verdict is the answer.
func (h *handler) placeHold(ctx context.Context, hold *Hold, dryRun bool) (outcome, error) {
	ask := func() (ledger.Verdict, error) { return h.ledger.Submit(ctx, hold.Command) }
	if dryRun {
		ask = func() (ledger.Verdict, error) { return h.ledger.Quote(ctx, hold.Command) }
	}
	verdict, err := ask()
	if err != nil {
		return outcome{}, ledgerError{fmt.Errorf("place hold %s: %w", hold.Command.UID, err)}
	}
	if verdict.Refusal != nil {
		denied := deny(Code(verdict.Refusal.Code), "%s", explainRefusal(verdict.Refusal, hold))
		return answered(denied), nil
	}
	failpoint.Hit("webhook.after-hold")
	result := answered(allow(Held))
	if dryRun && verdict.Reservation != nil {
		result.response = result.response.WithWarnings(quote(hold, verdict.Reservation.Amount))
	}
	return result, nil
}

func (h *handler) validateUpdate(ctx context.Context, request admission.Request, facts Facts, object any) (outcome, error) {
	after, ok := object.(*batchv1.Job)
	if !ok {
		return outcome{}, fmt.Errorf("no %s updates are decided here; only Jobs are expected: correct the webhook configuration", request.Kind.Kind)
	}
	before := &batchv1.Job{}
	if err := json.Unmarshal(request.OldObject.Raw, before); err != nil {
		return outcome{}, fmt.Errorf("decode the Job as it was: %w", err)
	}
	if facts.Enrolled && !NotCostlier(facts, before, after) {
		var err error
		if facts.JobReservation, err = h.reservation(ctx, string(after.UID)); err != nil {
			return outcome{}, err
		}
	}
	return answered(DecideJobUpdate(facts, before, after)), nil
}

func (h *handler) validateAccount(ctx context.Context, request admission.Request) (outcome, error) {
	row, found, err := h.ledger.Account(ctx, request.Name)
	if err != nil {
		return outcome{}, ledgerError{fmt.Errorf("read account %s: %w", request.Name, err)}
	}
	children, err := h.children(ctx, request.Name)
	if err != nil {
		return outcome{}, err
	}
	return answered(DecideAccountDeletion(request.Name, row, found, children)), nil
}

// Kinds that are decided here, by the only versions that the webhook configurations ask for.
var (
	jobKind = metav1.GroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	podKind = metav1.GroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
)

// decode returns the request's *batchv1.Job or *corev1.Pod, with its namespace, which a raw object may lack. The request says of
// which kind the object is; admission.Decoder would read the whole object once more, twice in fact, to find that out.
func decode(request admission.Request) (any, error) {
	switch request.Kind {
	case jobKind:
		job := &batchv1.Job{}
		if err := json.Unmarshal(request.Object.Raw, job); err != nil {
			return nil, fmt.Errorf("decode Job %s/%s: %w", request.Namespace, request.Name, err)
		}
		job.Namespace = request.Namespace
		return job, nil
	case podKind:
		pod := &corev1.Pod{}
		if err := json.Unmarshal(request.Object.Raw, pod); err != nil {
			return nil, fmt.Errorf("decode Pod %s/%s: %w", request.Namespace, request.Name, err)
		}
		pod.Namespace = request.Namespace
		return pod, nil
	}
	return nil, fmt.Errorf("%s is not decided here; only Jobs of batch/v1 and Pods of v1 are expected: correct the webhook configuration", request.Kind.String())
}

func templateOf(object any) podTemplate {
	switch object := object.(type) {
	case *batchv1.Job:
		return podTemplate{&object.Spec.Template.Spec, object.Spec.Template.Labels}
	case *corev1.Pod:
		return podTemplate{&object.Spec, object.Labels}
	}
	panic(fmt.Sprintf("webhook: template of a %T", object))
}
