// Command nodesim plays GPU nodes against an API server; see package nodesim.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/gpubank/gpubank/test/nodesim"
)

func main() {
	if err := mainErr(); err != nil {
		fmt.Fprintln(os.Stderr, "nodesim:", err)
		os.Exit(1)
	}
}

func mainErr() error {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the API server")
	count := flag.Int("nodes", 2, "number of nodes, named <prefix>-0 and on")
	prefix := flag.String("prefix", "gpu", "prefix of node names")
	gpus := flag.Int("gpus", 8, "GPUs of each node")
	resource := flag.String("resource-name", "nvidia.com/gpu", "resource name of the GPUs")
	labels := flag.String("labels", "", "labels of each node, key=value separated by commas")
	socketDir := flag.String("socket-dir", "", "folder for the nodes' sockets and simulated GPU files")
	leaseInterval := flag.Duration("lease-interval", 0, "how often each node renews its lease; 0 for the kubelet's 10s")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	options := nodesim.Options{SocketDir: *socketDir, LeaseInterval: *leaseInterval}
	nodeLabels := map[string]string{}
	for label := range strings.SplitSeq(*labels, ",") {
		if key, value, ok := strings.Cut(label, "="); ok {
			nodeLabels[key] = value
		}
	}
	for i := range *count {
		options.Nodes = append(options.Nodes, nodesim.NodeSpec{
			Name: fmt.Sprintf("%s-%d", *prefix, i), GPUs: *gpus, ResourceName: *resource, Labels: nodeLabels,
		})
	}
	ctx, stop := signal.NotifyContext(klog.NewContext(context.Background(), klog.Background()), os.Interrupt, syscall.SIGTERM)
	defer stop()
	simulator, err := nodesim.Start(ctx, config, options)
	if err != nil {
		return err
	}
	// One line on stdout tells whoever started us that the nodes are up.
	fmt.Println("ready")
	simulator.Wait()
	return nil
}
