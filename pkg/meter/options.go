package meter

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
	"github.com/gpubank/gpubank/pkg/nvml"
)

// Options are the agent's flags.
type Options struct {
	NodeName           string
	Kubeconfig         string
	PodResourcesSocket string
	ResourceNames      string
	Spool              string
	SpoolLimit         int
	IntakeURL          string
	IntakeCAFile       string
	TokenFile          string
	Interval           time.Duration
	ConfirmAfter       time.Duration
	LookEvery          time.Duration
	NVML               string
	MetricsAddress     string
}

// AddFlags declares the flags with their defaults.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.NodeName, "node-name", "", "name of the Node this agent runs on")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the API server; empty means the pod's own service account")
	flags.StringVar(&o.PodResourcesSocket, "pod-resources-socket", "/var/lib/kubelet/pod-resources/kubelet.sock", "the kubelet's PodResources socket")
	flags.StringVar(&o.ResourceNames, "resource-names", "nvidia.com/gpu,nvidia.com/mig-*", "resource names that count as GPUs, separated by commas; * stands for anything but a slash")
	flags.StringVar(&o.Spool, "spool", "/var/lib/gpubank/spool.db", "file that keeps intervals until they are acknowledged")
	// 200,000 intervals are 17 days of 8 one-minute pods, and about 100 MB.
	flags.IntVar(&o.SpoolLimit, "spool-limit", 200_000, "most intervals the spool takes; at the limit, cutting waits")
	flags.StringVar(&o.IntakeURL, "intake-url", "https://credit-controller.gpubank-system.svc:8443", "address of the controller's meter intake")
	flags.StringVar(&o.IntakeCAFile, "intake-ca-file", "/etc/gpubank/intake-ca/ca.crt", "PEM certificates that vouch for the intake; empty means the system's")
	flags.StringVar(&o.TokenFile, "token-file", "/var/run/secrets/gpubank.io/token", "projected service-account token of audience "+intakeapi.Audience)
	flags.DurationVar(&o.Interval, "interval", time.Minute, "distance of the boundaries that held time is cut on, whole seconds; keep it: other boundaries after a lost spool are discrepancies")
	// Kubelets notice an exit within a second by its event, and within 10 s where only relisting tells them.
	flags.DurationVar(&o.ConfirmAfter, "confirm-after", 10*time.Second, "how long a pod must still be listed after a moment for that moment to count as held")
	flags.DurationVar(&o.LookEvery, "look-every", 5*time.Second, "time between two looks at the node")
	flags.StringVar(&o.NVML, "nvml", nvml.ModeAuto, "where device facts come from: auto, real, none or simulated:<file>")
	flags.StringVar(&o.MetricsAddress, "metrics-address", ":9400", "address of /metrics, /healthz and /readyz")
}

// Check refuses what cannot work, naming the flag.
func (o *Options) Check() error {
	switch {
	case o.NodeName == "":
		return errors.New("--node-name is not set: give the Node this agent runs on (spec.nodeName in the DaemonSet)")
	case o.Interval < time.Second || o.Interval%time.Second != 0:
		return fmt.Errorf("--interval=%s: want whole seconds, 1s or more", o.Interval)
	case o.LookEvery < 100*time.Millisecond:
		return fmt.Errorf("--look-every=%s: want 100ms or more", o.LookEvery)
	case o.ConfirmAfter < 0:
		return fmt.Errorf("--confirm-after=%s: want 0s or more", o.ConfirmAfter)
	case o.SpoolLimit < 1:
		return fmt.Errorf("--spool-limit=%d: want 1 or more", o.SpoolLimit)
	}
	return nvml.CheckMode(o.NVML)
}

// podLimit bounds one pod's waiting intervals to more than a day of one-minute ones, so that a pod which the intake
// does not take cannot fill the spool for the others.
const podLimit = 2000

// keepFinal is how long a finished pod stays in the metrics: several scrapes of any usual scrape interval.
const keepFinal = 10 * time.Minute

// Run builds the agent from its parts and runs it until ctx ends. An error that wraps intakeapi.ErrStaleEpoch means
// that another agent has taken over the node.
func Run(ctx context.Context, options Options) error {
	if err := options.Check(); err != nil {
		return err
	}
	logger := klog.FromContext(ctx).WithValues("node", options.NodeName)
	ctx = klog.NewContext(ctx, logger)
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("API server configuration: %w", err)
	}
	config.UserAgent = "gpubank-nvml-exporter"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("API server client: %w", err)
	}
	pods, err := NewPodWatch(client, options.NodeName)
	if err != nil {
		return err
	}
	kubelet, err := NewKubelet(options.PodResourcesSocket, strings.Split(options.ResourceNames, ","))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	intake, err := intakeapi.NewClient(intakeapi.ClientOptions{
		URL: options.IntakeURL, CAFile: options.IntakeCAFile, TokenFile: options.TokenFile,
	})
	if err != nil {
		return err
	}
	spool, err := OpenSpool(options.Spool, logger)
	if err != nil {
		return err
	}
	defer spool.Close()
	if options.NVML == nvml.ModeReal {
		devices, err := nvml.Open(options.NVML)
		if err != nil {
			return err
		}
		_ = devices.Close() // it was opened to see whether it can be
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := NewMetrics(spool, options.SpoolLimit, registry)
	realClock := clock.RealClock{}
	agent := &Agent{
		Pods: pods, Holdings: kubelet, Spool: spool, Metrics: metrics, Clock: realClock,
		Sender: NewSender(options.NodeName, intake, spool, realClock, rand.Float64, metrics),
		Settings: Settings{
			Interval: options.Interval, ConfirmAfter: options.ConfirmAfter,
			SpoolLimit: options.SpoolLimit, PodLimit: podLimit, KeepFinal: keepFinal,
		},
		LookEvery:   options.LookEvery,
		OpenDevices: func() (nvml.Devices, error) { return nvml.Open(options.NVML) },
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx, options.MetricsAddress, agent, registry) })
	group.Go(func() error {
		if err := pods.Start(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		logger.Info("Metering", "interval", options.Interval, "podResourcesSocket", options.PodResourcesSocket, "spooled", spool.Depth())
		return agent.Run(ctx)
	})
	return group.Wait()
}

// serve answers /metrics, /healthz and /readyz until ctx ends.
func serve(ctx context.Context, address string, agent *Agent, registry *prometheus.Registry) error {
	probe := func(check func() error) http.HandlerFunc {
		return func(response http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(response, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(response, "ok")
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", probe(agent.Healthy))
	mux.Handle("GET /readyz", probe(agent.Ready))
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics on %s: %w", address, err)
	}
	return nil
}
