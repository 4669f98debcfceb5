package parts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpubank/gpubank/api/v1alpha1"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/cluster/binaries"
)

// Names of the parts' processes, which are also those of their service accounts where they have one.
const (
	Controller = "credit-controller"
	Webhook    = "credit-webhook"
	Scheduler  = "gpubank-scheduler"
	Agent      = "nvml-exporter"
	Nodes      = "nodesim"
)

// Commands are built for every run.
var commands = []string{"cmd/credit-controller", "cmd/credit-webhook", "cmd/scheduler", "cmd/nvml-exporter", "cmd/kubectl-credit", "test/nodesim/cmd/nodesim"}

// Gpubank is all parts of one installation. Each is a process of its own, to be stopped, killed and started again.
type Gpubank struct {
	Controller, Webhook, Scheduler *cluster.Process
	// Nodes is nodesim; nil without nodes. Agents are by node name.
	Nodes  *cluster.Process
	Agents map[string]*cluster.Process

	// DatabaseURL is the ledger's for the owner of its tables, for what tests and benchmarks do beside the parts.
	DatabaseURL string
	// IntakeURL is where agents report, IntakeCAFile what vouches for it.
	IntakeURL, IntakeCAFile string
	// Bin is the folder with the programs, kubectl-credit among them.
	Bin string

	options   Options
	applier   *Applier
	manifests []*unstructured.Unstructured
	webhook   string // https://127.0.0.1:port
}

// Build builds the programs, so that New finds them ready. progress hears what takes long.
func Build(ctx context.Context, progress func(line string), tags ...string) error {
	_, err := binaries.EnsureParts(ctx, progress, tags, commands...)
	return err
}

// New builds the programs, installs the manifests and prepares the processes; it starts none of them.
func New(ctx context.Context, options Options) (*Gpubank, error) {
	options = options.withDefaults()
	bin, err := binaries.EnsureParts(ctx, options.Progress, options.Tags, commands...)
	if err != nil {
		return nil, err
	}
	g := &Gpubank{Bin: bin, options: options, Agents: map[string]*cluster.Process{}}
	if g.manifests, err = Render(); err != nil {
		return nil, err
	}
	if g.applier, err = NewApplier(options.ControlPlane.RESTConfig()); err != nil {
		return nil, err
	}
	if err := install(ctx, g.applier, g.manifests); err != nil {
		return nil, err
	}
	if err := options.ControlPlane.WaitNamespace(ctx, v1alpha1.SystemNamespace); err != nil {
		return nil, err
	}
	if g.DatabaseURL, err = options.Postgres.EnsureDatabase(ctx, options.Database); err != nil {
		return nil, err
	}
	for _, role := range []string{cluster.ControllerRole, cluster.ReaderRole, cluster.SchedulerRole, cluster.WebhookRole} {
		if err := cluster.WriteURLFile(g.DatabaseURLFile(role), options.Postgres.URLAs(role, options.Database)); err != nil {
			return nil, err
		}
	}
	if err := cluster.WriteURLFile(g.ownerURLFile(), g.DatabaseURL); err != nil {
		return nil, err
	}
	if err := g.prepare(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *Gpubank) prepare(ctx context.Context) error {
	var err error
	if g.Controller, err = g.newController(ctx); err != nil {
		return err
	}
	if g.Webhook, err = g.newWebhook(ctx); err != nil {
		return err
	}
	if g.Scheduler, err = g.NewScheduler(ctx, Scheduler, nil); err != nil {
		return err
	}
	if g.options.Nodes > 0 {
		g.Nodes, err = g.newNodes()
	}
	return err
}

// Start starts every part in the order in which they can become ready, nodes and their agents last.
func (g *Gpubank) Start(ctx context.Context) error {
	if err := g.Migrate(ctx); err != nil {
		return err
	}
	if err := g.Controller.Start(ctx); err != nil {
		return err
	}
	if err := g.writeIntakeAuthority(ctx); err != nil {
		return err
	}
	if err := g.Webhook.Start(ctx); err != nil {
		return err
	}
	authority, err := os.ReadFile(g.options.ControlPlane.CAFile)
	if err != nil {
		return fmt.Errorf("read the control plane's authority: %w", err)
	}
	if err := configureWebhooks(ctx, g.applier, g.manifests, g.webhook, authority); err != nil {
		return err
	}
	if err := g.Scheduler.Start(ctx); err != nil {
		return err
	}
	if g.Nodes == nil {
		return nil
	}
	if err := g.Nodes.Start(ctx); err != nil {
		return err
	}
	for i := range g.options.Nodes {
		node := NodeName(i)
		agent, err := g.NewAgent(ctx, node)
		if err != nil {
			return err
		}
		g.Agents[node] = agent
		if err := agent.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Migrate makes the ledger's tables, as the controller's init container does.
func (g *Gpubank) Migrate(ctx context.Context) error {
	migrate := exec.CommandContext(ctx, filepath.Join(g.Bin, "credit-controller"), "migrate", "--database-url-file="+g.ownerURLFile())
	if output, err := migrate.CombinedOutput(); err != nil {
		return fmt.Errorf("migrate the ledger: %w\n%s", err, output)
	}
	return nil
}

// Processes lists the parts that were prepared, in the order in which they start.
func (g *Gpubank) Processes() []*cluster.Process {
	var all []*cluster.Process
	for _, process := range []*cluster.Process{g.Controller, g.Webhook, g.Scheduler, g.Nodes} {
		if process != nil {
			all = append(all, process)
		}
	}
	for i := range g.options.Nodes {
		if agent := g.Agents[NodeName(i)]; agent != nil {
			all = append(all, agent)
		}
	}
	return all
}

// Close kills every part. What they hold is in PostgreSQL and etcd.
func (g *Gpubank) Close() error {
	var all error
	processes := g.Processes()
	for i := len(processes) - 1; i >= 0; i-- {
		all = errors.Join(all, processes[i].Kill())
	}
	return all
}

// NodeName is the name of the i-th node, from 0.
func NodeName(i int) string { return "gpu-" + strconv.Itoa(i) }

func (g *Gpubank) newController(ctx context.Context) (*cluster.Process, error) {
	kubeconfig, err := g.kubeconfig(ctx, Controller)
	if err != nil {
		return nil, err
	}
	address, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	g.IntakeURL = "https://" + address[0]
	g.IntakeCAFile = g.path("intake-ca.crt")
	return g.process(Controller, "credit-controller", "http://"+address[1]+"/readyz",
		"--kubeconfig="+kubeconfig,
		"--database-url-file="+g.DatabaseURLFile(cluster.ControllerRole),
		"--intake-address="+address[0],
		"--health-probe-address="+address[1],
		"--metrics-address="+address[2],
	), nil
}

func (g *Gpubank) newWebhook(ctx context.Context) (*cluster.Process, error) {
	kubeconfig, err := g.kubeconfig(ctx, Webhook)
	if err != nil {
		return nil, err
	}
	certificates := g.path("credit-webhook-certificate")
	if err := g.options.ControlPlane.ServingCertificate(certificates, Webhook); err != nil {
		return nil, err
	}
	address, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	g.webhook = "https://" + address[0]
	_, port, _ := net.SplitHostPort(address[0])
	return g.process(Webhook, "credit-webhook", "http://"+address[1]+"/readyz",
		"--kubeconfig="+kubeconfig,
		"--database-url-file="+g.DatabaseURLFile(cluster.WebhookRole),
		"--webhook-port="+port,
		"--cert-dir="+certificates,
		"--health-probe-address="+address[1],
		"--metrics-address="+address[2],
	), nil
}

func (g *Gpubank) newNodes() (*cluster.Process, error) {
	kubeconfig, err := g.options.ControlPlane.UserKubeconfig(Nodes, "nodesim", "system:masters")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(g.nodesFolder(), 0o700); err != nil {
		return nil, fmt.Errorf("make the nodes' folder: %w", err)
	}
	var labels []string
	for key, value := range g.options.NodeLabels {
		labels = append(labels, key+"="+value)
	}
	process := g.process(Nodes, "nodesim", "",
		"--kubeconfig="+kubeconfig,
		"--nodes="+strconv.Itoa(g.options.Nodes),
		"--prefix="+strings.TrimSuffix(NodeName(0), "-0"),
		"--gpus="+strconv.Itoa(g.options.GPUs),
		"--labels="+strings.Join(labels, ","),
		"--socket-dir="+g.nodesFolder(),
	)
	process.SetReady(func(ctx context.Context) error {
		for i := range g.options.Nodes {
			connection, err := net.Dial("unix", g.nodeFile(NodeName(i), ".sock"))
			if err != nil {
				return err
			}
			connection.Close()
			if _, err := g.options.ControlPlane.Client().CoreV1().Nodes().Get(ctx, NodeName(i), metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	return process, nil
}

// NewAgent prepares the node agent of a node that exists, with tokens bound to a pod on it, as the DaemonSet's are.
func (g *Gpubank) NewAgent(ctx context.Context, node string) (*cluster.Process, error) {
	name := Agent + "-" + node
	pod, err := g.agentPod(ctx, node)
	if err != nil {
		return nil, err
	}
	cp := g.options.ControlPlane
	kubeconfig, err := cp.ServiceAccountKubeconfig(ctx, name, serviceAccount(Agent), cluster.TokenOptions{Pod: pod})
	if err != nil {
		return nil, err
	}
	token, err := cp.ServiceAccountTokenFile(ctx, name+"-intake", serviceAccount(Agent), cluster.TokenOptions{Pod: pod, Audience: intakeAudience})
	if err != nil {
		return nil, err
	}
	address, err := freeAddresses(1)
	if err != nil {
		return nil, err
	}
	return g.process(name, "nvml-exporter", "http://"+address[0]+"/readyz",
		"--node-name="+node,
		"--kubeconfig="+kubeconfig,
		"--pod-resources-socket="+g.nodeFile(node, ".sock"),
		"--nvml=simulated:"+g.SimulatedGPUs(node),
		"--spool="+g.nodeFile(node, "-spool.db"),
		"--intake-url="+g.IntakeURL,
		"--intake-ca-file="+g.IntakeCAFile,
		"--token-file="+token,
		"--metrics-address="+address[0],
		"--interval="+g.options.MeterInterval.String(),
		"--look-every=500ms", "--confirm-after=1s",
	), nil
}

// intakeAudience is intakeapi.Audience; stated again because a changed audience would lock out installed agents.
const intakeAudience = "gpubank-intake"

// AgentToken is a token of the intake as a node's agent has it, for a test that plays the node. The node must exist.
func (g *Gpubank) AgentToken(ctx context.Context, node string) (string, error) {
	pod, err := g.agentPod(ctx, node)
	if err != nil {
		return "", err
	}
	return g.options.ControlPlane.ServiceAccountToken(ctx, serviceAccount(Agent), cluster.TokenOptions{Pod: pod, Audience: intakeAudience})
}

// agentPod makes the pod of a node's agent unless it is there, and returns its name.
func (g *Gpubank) agentPod(ctx context.Context, node string) (string, error) {
	pod := types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: Agent + "-" + node}
	cp := g.options.ControlPlane
	if _, err := cp.Client().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err == nil {
		return pod.Name, nil
	}
	return pod.Name, cp.CreatePodOnNode(ctx, pod, Agent, node)
}

// process prepares a part. ready is the address that answers 200 once it serves; empty for none.
func (g *Gpubank) process(name, program, ready string, arguments ...string) *cluster.Process {
	part := name
	if strings.HasPrefix(name, Agent+"-") {
		part = Agent
	}
	command := cluster.Command{
		Name: name, Path: filepath.Join(g.Bin, program), Dir: g.options.ControlPlane.Dir, LogFile: g.path(name + ".log"),
		Args: append(arguments, g.options.Arguments[part]...),
		Env:  g.options.Environment,
	}
	if ready != "" {
		command.Ready = cluster.HTTPReady(ready)
	}
	return cluster.NewProcess(command)
}

// writeIntakeAuthority copies to a file what the controller published for agents to mount.
func (g *Gpubank) writeIntakeAuthority(ctx context.Context) error {
	published, err := g.options.ControlPlane.Client().CoreV1().ConfigMaps(v1alpha1.SystemNamespace).Get(ctx, "intake-ca", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the intake's published authority: %w", err)
	}
	if err := os.WriteFile(g.IntakeCAFile, []byte(published.Data["ca.crt"]), 0o600); err != nil {
		return fmt.Errorf("write the intake's authority: %w", err)
	}
	return nil
}

func (g *Gpubank) kubeconfig(ctx context.Context, account string) (string, error) {
	return g.options.ControlPlane.ServiceAccountKubeconfig(ctx, account, serviceAccount(account), cluster.TokenOptions{})
}

func serviceAccount(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: name}
}

func (g *Gpubank) path(name string) string { return filepath.Join(g.options.ControlPlane.Dir, name) }

// DatabaseURLFile holds the ledger's address for a part, by its role in PostgreSQL.
func (g *Gpubank) DatabaseURLFile(role string) string { return g.path("database-url-" + role) }

func (g *Gpubank) ownerURLFile() string { return g.path("database-url-owner") }

// nodesFolder has a short path, because Unix sockets are put into it.
func (g *Gpubank) nodesFolder() string {
	return filepath.Join(g.options.ControlPlane.ShortDir(), "nodes")
}

// SimulatedGPUs is the file in which nodesim plays the driver of a node's GPUs for its agent.
func (g *Gpubank) SimulatedGPUs(node string) string { return g.nodeFile(node, "-gpus.yaml") }

func (g *Gpubank) nodeFile(node, suffix string) string {
	return filepath.Join(g.nodesFolder(), node+suffix)
}

// freeAddresses are free addresses of 127.0.0.1.
func freeAddresses(count int) ([]string, error) {
	var addresses []string
	for range count {
		port, err := cluster.FreePort()
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	return addresses, nil
}
