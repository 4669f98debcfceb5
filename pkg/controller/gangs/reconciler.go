package gangs

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	coschedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/workload"
)

// eventRestarted is told to each member that is deleted. Users and their scripts look for the name.
const eventRestarted = "GangRestarted"

// Reconciler restarts gangs. See the package documentation.
type Reconciler struct {
	client   client.Client // reads pods and Jobs from the cache
	live     client.Reader
	recorder events.EventRecorder
}

// SetupWithManager registers the reconciler.
func SetupWithManager(mgr manager.Manager) error {
	r := &Reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder("credit-controller")}
	err := builder.TypedControllerManagedBy[workload.Group](mgr).Named("gang").
		Watches(&corev1.Pod{}, podHandler()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the gangs' reconciler: %w", err)
	}
	return nil
}

type groupQueue = workqueue.TypedRateLimitingInterface[workload.Group]

// podHandler asks about the group of a pod that has died.
func podHandler() handler.TypedEventHandler[client.Object, workload.Group] {
	ask := func(object client.Object, queue groupQueue) {
		pod, ok := object.(*corev1.Pod)
		if !ok || memberOf(pod).died.IsZero() {
			return
		}
		if group := workload.GroupOf(pod); group.Kind != workload.NoGroup {
			queue.Add(group)
		}
	}
	return handler.TypedFuncs[client.Object, workload.Group]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue groupQueue) { ask(e.Object, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue groupQueue) { ask(e.ObjectNew, queue) },
	}
}

// Reconcile implements reconcile.TypedReconciler.
func (r *Reconciler) Reconcile(ctx context.Context, group workload.Group) (ctrl.Result, error) {
	together, err := r.restartsTogether(ctx, group)
	if err != nil || !together {
		return ctrl.Result{}, err
	}
	members, err := r.gather(ctx, group)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, each := range decideRestart(members) {
		if err := r.restart(ctx, each); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// restartsTogether reads the gang's policy from the object that describes it. One that is gone, being deleted or over has none.
func (r *Reconciler) restartsTogether(ctx context.Context, group workload.Group) (bool, error) {
	key := client.ObjectKey{Namespace: group.Namespace, Name: group.Name}
	if group.Kind == workload.JobGroup {
		job := &batchv1.Job{}
		if err := r.client.Get(ctx, key, job); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return string(job.UID) == group.UID && job.DeletionTimestamp == nil && job.Status.CompletionTime == nil && !failed(job) &&
			job.Annotations[v1alpha1.GangAnnotation] == "true" && together(job), nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup"))
	if group.Kind == workload.CoschedulingGroup {
		object.SetGroupVersionKind(coschedulingv1alpha1.SchemeGroupVersion.WithKind("PodGroup"))
	}
	err := r.live.Get(ctx, key, object) // not cached: it is read when a pod has died, and its API may not be served
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read PodGroup %s/%s, one of whose pods has died: %w", group.Namespace, group.Name, err)
	}
	return object.DeletionTimestamp == nil && together(object), nil
}

func together(object client.Object) bool {
	return object.GetAnnotations()[v1alpha1.GangRestartAnnotation] == v1alpha1.GangRestartTogether
}

func failed(job *batchv1.Job) bool {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobFailed || condition.Type == batchv1.JobFailureTarget) && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func (r *Reconciler) gather(ctx context.Context, group workload.Group) (members []member, err error) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(group.Namespace)); err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", group.Key(), err)
	}
	for i := range pods.Items {
		if workload.GroupOf(&pods.Items[i]) == group {
			members = append(members, memberOf(&pods.Items[i]))
		}
	}
	return members, nil
}

// restart marks a member and deletes it, by UID. If this process dies between the two, its successor does the rest: marked, it still runs.
func (r *Reconciler) restart(ctx context.Context, what restart) error {
	pod := what.pod
	if pod.Annotations[restartedAnnotation] == "" {
		marked := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, pod.UID, restartedAnnotation, what.because.UID)
		err := r.client.Patch(ctx, marked, client.RawPatch("application/merge-patch+json", []byte(patch)))
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
			return nil // it is gone, or replaced
		}
		if err != nil {
			return fmt.Errorf("mark pod %s/%s, which is restarted with pod %s of its gang: %w", pod.Namespace, pod.Name, what.because.Name, err)
		}
	}
	err := r.client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}, client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restart pod %s/%s with pod %s of its gang: %w", pod.Namespace, pod.Name, what.because.Name, err)
	}
	log.FromContext(ctx).Info("Pod was asked to stop: a member of its gang died", "pod", client.ObjectKeyFromObject(pod), "because", what.because.Name)
	reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	r.recorder.Eventf(reference, nil, corev1.EventTypeNormal, eventRestarted, "Restart",
		"pod %s of the same gang died; all are made anew (%s: %s)", what.because.Name, v1alpha1.GangRestartAnnotation, v1alpha1.GangRestartTogether)
	return nil
}
