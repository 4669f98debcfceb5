package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/pkg/ledger"
)

const (
	account   = "team-a"
	namespace = "team-a"
	job       = "train"
)

// patience bounds how long anything may take that takes about a second on an idle machine.
const patience = 2 * time.Minute

// api is the cluster as a person with kubectl sees it.
type api struct{ client.Client }

func newAPI(config *rest.Config) (*api, error) {
	log.SetLogger(logr.Discard()) // what matters is told, or returned as an error
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	client, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &api{client}, nil
}

// create creates the objects of a YAML file, as `kubectl create -f` does.
func (a *api) create(ctx context.Context, file []byte) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 4<<10)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an example: %w", err)
		}
		if len(object.Object) == 0 {
			continue // a comment before the first separator
		}
		if err := a.Create(ctx, object); err != nil {
			return err
		}
	}
}

// amounts are what `kubectl get creditaccounts` shows of an account.
type amounts struct{ balance, reserved, available, charged ledger.Microcredits }

func (a *api) amounts(ctx context.Context) (amounts, error) {
	var found v1alpha1.CreditAccount
	if err := a.Get(ctx, client.ObjectKey{Name: account}, &found); err != nil {
		return amounts{}, fmt.Errorf("read account %s: %w", account, err)
	}
	var result amounts
	for _, each := range []struct {
		into *ledger.Microcredits
		text v1alpha1.Credits
	}{
		{&result.balance, found.Status.Balance}, {&result.reserved, found.Status.Reserved},
		{&result.available, found.Status.Available}, {&result.charged, found.Status.Charged},
	} {
		if each.text == "" {
			continue // the controller has not answered yet
		}
		amount, err := ledger.ParseCredits(string(each.text))
		if err != nil {
			return amounts{}, fmt.Errorf("read account %s: %w", account, err)
		}
		*each.into = amount
	}
	return result, nil
}

// pod is the Job's only pod, or nil while it has none.
func (a *api) pod(ctx context.Context) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := a.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: job}); err != nil {
		return nil, fmt.Errorf("list the pods of Job %s: %w", job, err)
	}
	switch len(pods.Items) {
	case 0:
		return nil, nil
	case 1:
		return &pods.Items[0], nil
	default:
		return nil, fmt.Errorf("job %s has %d pods, want one", job, len(pods.Items))
	}
}

// until asks again and again until the answer is yes, within patience.
func until(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, err := ask(limited)
		if err != nil && limited.Err() == nil {
			return err
		}
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limited.Done():
			return fmt.Errorf("not within %s: %s", patience, what)
		case <-tick.C:
		}
	}
}
