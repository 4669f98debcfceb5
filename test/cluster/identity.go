package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// UserRESTConfig is the configuration of a user in groups, by client certificate, without client-side rate limits.
func (cp *ControlPlane) UserRESTConfig(user string, groups ...string) *rest.Config {
	identity, err := cp.authority.client(user, groups...)
	if err != nil {
		panic(err) // only an exhausted source of randomness fails here
	}
	return &rest.Config{
		Host: cp.Host,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: cp.authority.pem, CertData: identity.certificate, KeyData: identity.key,
		},
		QPS: -1,
	}
}

// UserKubeconfig writes the kubeconfig of a user in groups to Dir/<name>.kubeconfig and returns its path. A node's
// kubelet is user system:node:<node> in group system:nodes.
func (cp *ControlPlane) UserKubeconfig(name, user string, groups ...string) (string, error) {
	identity, err := cp.authority.client(user, groups...)
	if err != nil {
		return "", err
	}
	return cp.writeKubeconfig(name, &clientcmdapi.AuthInfo{
		ClientCertificateData: identity.certificate, ClientKeyData: identity.key,
	})
}

// TokenOptions say what a service account token is for.
type TokenOptions struct {
	// Audience is whom the token is meant for; the API server if empty.
	Audience string
	// Pod, of the service account's namespace, is what the token is bound to: it ends with the pod, and carries the
	// pod's node as the claim authentication.kubernetes.io/node-name. Empty: bound to nothing.
	Pod string
	// Lifetime is 30 days if zero, for an exploratory cluster that is left running. The API server accepts no less than
	// 10 minutes.
	Lifetime time.Duration
}

// ServiceAccountToken asks the API server for a token of a service account, as the kubelet does for a pod.
func (cp *ControlPlane) ServiceAccountToken(ctx context.Context, account types.NamespacedName, options TokenOptions) (string, error) {
	client := cp.Client()
	lifetime := options.Lifetime
	if lifetime == 0 {
		lifetime = 30 * 24 * time.Hour
	}
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if options.Audience != "" {
		request.Spec.Audiences = []string{options.Audience}
	}
	if options.Pod != "" {
		pod, err := client.CoreV1().Pods(account.Namespace).Get(ctx, options.Pod, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("bind a token of %s to pod %s: %w", account, options.Pod, err)
		}
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}
	}
	answer, err := client.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of service account %s: %w", account, err)
	}
	return answer.Status.Token, nil
}

// ServiceAccountTokenFile writes a token to Dir/<name>.token and returns its path.
func (cp *ControlPlane) ServiceAccountTokenFile(ctx context.Context, name string, account types.NamespacedName, options TokenOptions) (string, error) {
	token, err := cp.ServiceAccountToken(ctx, account, options)
	if err != nil {
		return "", err
	}
	path := cp.path(name + ".token")
	if err := writeFiles(map[string][]byte{path: []byte(token)}); err != nil {
		return "", fmt.Errorf("write a token of %s: %w", account, err)
	}
	return path, nil
}

// ServiceAccountKubeconfig writes the kubeconfig of a service account to Dir/<name>.kubeconfig and returns its path:
// a part of gpubank that is started with it has exactly the rights that the manifests give it.
func (cp *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, name string, account types.NamespacedName, options TokenOptions) (string, error) {
	token, err := cp.ServiceAccountTokenFile(ctx, name, account, options)
	if err != nil {
		return "", err
	}
	return cp.writeKubeconfig(name, &clientcmdapi.AuthInfo{TokenFile: token})
}

// CreatePodOnNode makes a pod of a service account that is already assigned to a node, as the DaemonSet controller and
// the scheduler would; tokens can then be bound to it.
func (cp *ControlPlane) CreatePodOnNode(ctx context.Context, pod types.NamespacedName, account, node string) error {
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Spec: corev1.PodSpec{
			NodeName:           node,
			ServiceAccountName: account,
			Containers:         []corev1.Container{{Name: "stand-in", Image: "none.invalid/stand-in"}},
		},
	}
	if _, err := cp.Client().CoreV1().Pods(pod.Namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s on node %s: %w", pod, node, err)
	}
	return nil
}

func (cp *ControlPlane) writeKubeconfig(name string, user *clientcmdapi.AuthInfo) (string, error) {
	const entry = "gpubank"
	path := filepath.Join(cp.Dir, name+".kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = &clientcmdapi.Cluster{Server: cp.Host, CertificateAuthorityData: cp.authority.pem}
	config.AuthInfos[entry] = user
	config.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	config.CurrentContext = entry
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write the kubeconfig %s: %w", name, err)
	}
	return path, nil
}

// ServingCertificate writes tls.crt and tls.key of a server at 127.0.0.1 into a folder; CAFile vouches for it.
func (cp *ControlPlane) ServingCertificate(folder, commonName string) error {
	pair, err := cp.authority.serving(commonName)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("write the certificate of %s: %w", commonName, err)
	}
	if err := writeFiles(map[string][]byte{
		filepath.Join(folder, "tls.crt"): pair.certificate,
		filepath.Join(folder, "tls.key"): pair.key,
	}); err != nil {
		return fmt.Errorf("write the certificate of %s: %w", commonName, err)
	}
	return nil
}
