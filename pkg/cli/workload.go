package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/uuid"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxWorkloadBytes is above what the API server takes for one object.
const maxWorkloadBytes = 4 << 20

// readWorkload reads one Job or Pod from a file, or from in for "-", and gives it what the API server gives it before
// admission decides: a namespace, a name and a UID.
func readWorkload(in io.Reader, file, namespace string) (client.Object, error) {
	where := file
	if file == "-" {
		where = "standard input"
	} else {
		opened, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read the workload: %w", err)
		}
		defer opened.Close()
		in = opened
	}
	documents, err := splitDocuments(io.LimitReader(in, maxWorkloadBytes))
	if err != nil {
		return nil, fmt.Errorf("read the workload from %s: %w", where, err)
	}
	if len(documents) != 1 {
		return nil, fmt.Errorf("%s holds %d objects; quote one Job or Pod at a time", where, len(documents))
	}
	object, err := decodeWorkload(documents[0])
	if err != nil {
		return nil, fmt.Errorf("read the workload from %s: %w", where, err)
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(namespace)
	}
	if object.GetName() == "" {
		if object.GetGenerateName() == "" {
			return nil, fmt.Errorf("the workload from %s has no name", where)
		}
		object.SetName(object.GetGenerateName() + "quote")
	}
	object.SetUID(uuid.NewUUID()) // no reservation has it
	return object, nil
}

// splitDocuments returns the documents of YAML or JSON that hold something.
func splitDocuments(in io.Reader) ([][]byte, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(in))
	var documents [][]byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		asJSON, err := utilyaml.ToJSON(document)
		if err != nil {
			return nil, err
		}
		if string(asJSON) != "null" {
			documents = append(documents, document)
		}
	}
}

// decodeWorkload is strict: a field that is misspelt would change the price.
func decodeWorkload(document []byte) (client.Object, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(batchv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	decoded, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(document, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return nil, fmt.Errorf("it is neither a Job (batch/v1) nor a Pod (v1): %w", err)
	}
	if err != nil {
		return nil, err
	}
	switch object := decoded.(type) {
	case *batchv1.Job:
		return object, nil
	case *corev1.Pod:
		return object, nil
	}
	return nil, fmt.Errorf("it is a %s, not a Job or Pod", decoded.GetObjectKind().GroupVersionKind().Kind)
}

func describeWorkload(object client.Object) string {
	kind := "Pod"
	if _, ok := object.(*batchv1.Job); ok {
		kind = "Job"
	}
	name := object.GetName()
	if prefix := object.GetGenerateName(); prefix != "" {
		name = prefix + "*"
	}
	return kind + " " + object.GetNamespace() + "/" + name
}

// namespace is the one asked for, else that of the kubeconfig's context, else "default".
func (c cluster) namespace(asked string) (string, error) {
	if asked != "" {
		return asked, nil
	}
	namespace, _, err := c.config().Namespace()
	if err != nil {
		return "", fmt.Errorf("find the namespace: %w", err)
	}
	return namespace, nil
}

// config reads kubeconfig as kubectl does.
func (c cluster) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context})
}
