package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpubank/gpubank/test/cluster/binaries"
)

// ControlPlaneOptions choose how the control plane runs. The zero value is what tests want.
type ControlPlaneOptions struct {
	// Dir keeps its data, keys and logs. Empty: a temporary folder, removed by Close.
	Dir string
	// EtcdArgs, APIServerArgs and ControllerManagerArgs are added to the defaults, and win over them.
	EtcdArgs, APIServerArgs, ControllerManagerArgs []string
	// WithoutControllerManager leaves it prepared but not started: no Job then gets pods.
	WithoutControllerManager bool
}

// ControlPlane is etcd, kube-apiserver and kube-controller-manager: an empty cluster with RBAC and the node
// authorizer, admission as in production, and service account tokens. Each part keeps its port and data over Stop,
// Kill and Start.
type ControlPlane struct {
	Etcd, APIServer, ControllerManager *Process

	// Dir holds keys, logs and kubeconfigs; Host is the API server's address, as https://127.0.0.1:port.
	Dir, Host string
	// Kubeconfig is the file of a cluster administrator.
	Kubeconfig string
	// CAFile holds the authority that signed the API server's certificate and every client certificate.
	CAFile string

	temporary string // what Close removes; empty if the caller chose Dir and its path is short enough for a socket
	authority *authority
	options   ControlPlaneOptions
}

// StartControlPlane starts the parts and waits until pods can be created in the default namespace.
func StartControlPlane(ctx context.Context, options ControlPlaneOptions) (*ControlPlane, error) {
	bin, err := binaries.FindControlPlane(binaries.Serving...)
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{options: options}
	if err := cp.start(ctx, bin); err != nil {
		return nil, errors.Join(err, cp.Close())
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context, bin string) error {
	if err := cp.makeFolders(); err != nil {
		return err
	}
	if err := cp.makeKeys(); err != nil {
		return err
	}
	cp.Etcd = cp.etcd(bin)
	if err := cp.Etcd.Start(ctx); err != nil {
		return err
	}
	err := startOnFreePort(ctx, func(port int) (*Process, error) {
		cp.Host = "https://127.0.0.1:" + strconv.Itoa(port)
		process, err := cp.apiServer(bin, port)
		cp.APIServer = process
		return process, err
	})
	if err != nil {
		return err
	}
	if cp.Kubeconfig, err = cp.UserKubeconfig("admin", "gpubank:admin", "system:masters"); err != nil {
		return err
	}
	// The first API server to see an empty etcd creates the system namespaces and roles after it is ready.
	if err := cp.waitFor(ctx, "namespace kube-system", func(client kubernetes.Interface) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	kubeconfig, err := cp.UserKubeconfig("kube-controller-manager", "system:kube-controller-manager")
	if err != nil {
		return err
	}
	if cp.options.WithoutControllerManager {
		port, err := FreePort()
		cp.ControllerManager = cp.controllerManager(bin, kubeconfig, port)
		return err
	}
	err = startOnFreePort(ctx, func(port int) (*Process, error) {
		cp.ControllerManager = cp.controllerManager(bin, kubeconfig, port)
		return cp.ControllerManager, nil
	})
	if err != nil {
		return err
	}
	return cp.WaitNamespace(ctx, metav1.NamespaceDefault)
}

// startOnFreePort starts what make returns, with another port when somebody took the first one.
func startOnFreePort(ctx context.Context, make func(port int) (*Process, error)) error {
	for attempt := 1; ; attempt++ {
		port, err := FreePort()
		if err != nil {
			return err
		}
		process, err := make(port)
		if err != nil {
			return err
		}
		err = process.Start(ctx)
		if err == nil || attempt == 5 || !strings.Contains(strings.ToLower(process.LogTail(30)), "address already in use") {
			return err
		}
	}
}

func (cp *ControlPlane) makeFolders() error {
	temporary, err := TempDir() // for the socket at least: its path must be short
	if err != nil {
		return err
	}
	cp.temporary, cp.Dir = temporary, temporary
	if cp.options.Dir != "" {
		if cp.Dir, err = filepath.Abs(cp.options.Dir); err != nil {
			return fmt.Errorf("make the control plane's folder: %w", err)
		}
		if err := os.MkdirAll(cp.Dir, 0o700); err != nil {
			return fmt.Errorf("make the control plane's folder: %w", err)
		}
	}
	return nil
}

func (cp *ControlPlane) path(name string) string { return filepath.Join(cp.Dir, name) }

// ShortDir is a folder of this run with a path short enough for Unix sockets; Close removes it.
func (cp *ControlPlane) ShortDir() string { return cp.temporary }

func (cp *ControlPlane) etcdURL() string { return "unix://" + filepath.Join(cp.temporary, "etcd.sock") }

func (cp *ControlPlane) makeKeys() error {
	var err error
	if cp.authority, err = newAuthority("gpubank-local"); err != nil {
		return err
	}
	serving, err := cp.authority.serving("kube-apiserver", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	if err != nil {
		return err
	}
	managerServing, err := cp.authority.serving("kube-controller-manager")
	if err != nil {
		return err
	}
	public, private, err := tokenKeys()
	if err != nil {
		return err
	}
	authorityKey, err := encodeKey(cp.authority.key)
	if err != nil {
		return err
	}
	cp.CAFile = cp.path("ca.crt")
	if err := writeFiles(map[string][]byte{
		cp.CAFile:                              cp.authority.pem,
		cp.path("ca.key"):                      authorityKey,
		cp.path("apiserver.crt"):               serving.certificate,
		cp.path("apiserver.key"):               serving.key,
		cp.path("kube-controller-manager.crt"): managerServing.certificate,
		cp.path("kube-controller-manager.key"): managerServing.key,
		cp.path("service-account-tokens.pub"):  public,
		cp.path("service-account-tokens.key"):  private,
	}); err != nil {
		return fmt.Errorf("write the control plane's keys: %w", err)
	}
	return nil
}

func (cp *ControlPlane) etcd(bin string) *Process {
	return NewProcess(Command{
		Name: "etcd", Path: filepath.Join(bin, "etcd"), LogFile: cp.path("etcd.log"), Dir: cp.Dir,
		Args: append([]string{
			"--data-dir=" + cp.path("etcd"),
			"--listen-client-urls=" + cp.etcdURL(),
			// Nobody uses the advertised address, but etcd insists on host:port.
			"--advertise-client-urls=http://127.0.0.1:0",
			"--listen-peer-urls=http://127.0.0.1:0",
			"--log-level=warn",
			// The data need to outlive a killed process, which they do; not a machine that loses power.
			"--unsafe-no-fsync",
			"--quota-backend-bytes=" + strconv.Itoa(4<<30),
			"--auto-compaction-mode=revision", "--auto-compaction-retention=10000",
		}, cp.options.EtcdArgs...),
		Ready: func(context.Context) error {
			connection, err := net.Dial("unix", strings.TrimPrefix(cp.etcdURL(), "unix://"))
			if err != nil {
				return err
			}
			return connection.Close()
		},
	})
}

func (cp *ControlPlane) apiServer(bin string, port int) (*Process, error) {
	ready, err := cp.readiness("https://127.0.0.1:"+strconv.Itoa(port)+"/readyz", "gpubank:admin", "system:masters")
	if err != nil {
		return nil, err
	}
	args := []string{
		"--etcd-servers=" + cp.etcdURL(),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		// A loopback address is no valid endpoint of the kubernetes Service.
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + cp.path("apiserver.crt"), "--tls-private-key-file=" + cp.path("apiserver.key"),
		"--client-ca-file=" + cp.CAFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.path("service-account-tokens.pub"),
		"--service-account-signing-key-file=" + cp.path("service-account-tokens.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--anonymous-auth=true",
		"--max-requests-inflight=1000", "--max-mutating-requests-inflight=500",
		"--shutdown-delay-duration=0s",
	}
	return NewProcess(Command{
		Name: "kube-apiserver", Path: filepath.Join(bin, "kube-apiserver"), LogFile: cp.path("kube-apiserver.log"), Dir: cp.Dir,
		Args: append(args, cp.options.APIServerArgs...), Ready: ready,
		StopGrace: 20 * time.Second,
	}), nil
}

func (cp *ControlPlane) controllerManager(bin, kubeconfig string, port int) *Process {
	address := "https://127.0.0.1:" + strconv.Itoa(port) + "/healthz"
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cp.roots()}, DisableKeepAlives: true}}
	args := []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + cp.path("kube-controller-manager.crt"),
		"--tls-private-key-file=" + cp.path("kube-controller-manager.key"),
		"--root-ca-file=" + cp.CAFile,
		"--service-account-private-key-file=" + cp.path("service-account-tokens.key"),
		"--cluster-signing-cert-file=" + cp.CAFile, "--cluster-signing-key-file=" + cp.path("ca.key"),
		// Each controller acts as its own user, as in production: pods of Jobs are made by
		// system:serviceaccount:kube-system:job-controller.
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}
	return NewProcess(Command{
		Name: "kube-controller-manager", Path: filepath.Join(bin, "kube-controller-manager"),
		LogFile: cp.path("kube-controller-manager.log"), Dir: cp.Dir,
		Args:  append(args, cp.options.ControllerManagerArgs...),
		Ready: func(ctx context.Context) error { return expectOK(ctx, client, address) },
	})
}

// readiness asks an address of the API server as the given user.
func (cp *ControlPlane) readiness(address, user string, groups ...string) (func(context.Context) error, error) {
	identity, err := cp.authority.client(user, groups...)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(identity.certificate, identity.key)
	if err != nil {
		return nil, fmt.Errorf("load the certificate of %s: %w", user, err)
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: cp.roots(), Certificates: []tls.Certificate{certificate}},
		DisableKeepAlives: true, // a kept connection would hold up the API server's orderly end
	}}
	return func(ctx context.Context) error { return expectOK(ctx, client, address) }, nil
}

func (cp *ControlPlane) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(cp.authority.certificate)
	return pool
}

// HTTPReady asks an address of 127.0.0.1 and reports nil once it answers 200 OK. The certificate of an https address is
// not checked: the question is only whether the program serves.
func HTTPReady(address string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	return func(ctx context.Context) error { return expectOK(ctx, client, address) }
}

func expectOK(ctx context.Context, client *http.Client, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", address, response.Status, body)
	}
	return nil
}

// RESTConfig is an administrator's, without client-side rate limits.
func (cp *ControlPlane) RESTConfig() *rest.Config {
	return cp.UserRESTConfig("gpubank:admin", "system:masters")
}

// Client is an administrator's client.
func (cp *ControlPlane) Client() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(cp.RESTConfig())
}

// CreateNamespace makes a namespace and waits until pods can be created in it.
func (cp *ControlPlane) CreateNamespace(ctx context.Context, name string, labels map[string]string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := cp.Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	if !cp.ControllerManager.Running() {
		return nil // nobody would make the service account
	}
	return cp.WaitNamespace(ctx, name)
}

// WaitNamespace waits until the controller manager has given a namespace its default service account, without which no
// pod can be created in it.
func (cp *ControlPlane) WaitNamespace(ctx context.Context, name string) error {
	return cp.waitFor(ctx, "the default service account of namespace "+name, func(client kubernetes.Interface) error {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// waitFor asks until the answer is no error, for at most a minute.
func (cp *ControlPlane) waitFor(ctx context.Context, what string, ask func(kubernetes.Interface) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client := cp.Client()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(client)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last answer: %v)", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// Processes lists the parts, in the order in which they start.
func (cp *ControlPlane) Processes() []*Process {
	var all []*Process
	for _, process := range []*Process{cp.Etcd, cp.APIServer, cp.ControllerManager} {
		if process != nil {
			all = append(all, process)
		}
	}
	return all
}

// Close ends all parts and removes the folder if it was a temporary one. Nothing of the cluster is wanted any more, so
// it does not wait for an orderly end.
func (cp *ControlPlane) Close() error {
	var all error
	processes := cp.Processes()
	for i := len(processes) - 1; i >= 0; i-- {
		all = errors.Join(all, processes[i].Kill())
	}
	if cp.temporary != "" {
		all = errors.Join(all, RemoveTempDir(cp.temporary))
	}
	return all
}
