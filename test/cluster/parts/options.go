package parts

import (
	"fmt"
	"os"
	"time"

	"github.com/gpubank/gpubank/test/cluster"
)

// Options say where and how the parts run. ControlPlane and Postgres are required.
type Options struct {
	ControlPlane *cluster.ControlPlane
	Postgres     *cluster.Postgres
	// Database of the ledger; made if it does not exist. "gpubank" if empty.
	Database string
	// Tags are build tags, such as "failpoints".
	Tags []string

	// Nodes is how many GPU nodes nodesim plays, each with a node agent; 0 for none, when a test plays the node itself.
	// They are named gpu-0, gpu-1, …
	Nodes int
	// GPUs of each node; 8 if 0.
	GPUs int
	// NodeLabels are set on each node.
	NodeLabels map[string]string

	// MeterInterval is the distance of the boundaries on which agents cut held time; 5 s if 0, where production has a
	// minute.
	MeterInterval time.Duration

	// Arguments are added to those of a part, under its name: credit-controller, credit-webhook, gpubank-scheduler,
	// nvml-exporter, nodesim. They win over the defaults.
	Arguments map[string][]string

	// Environment is added to every part's, for example to name the failpoints' file.
	Environment []string

	// Progress hears what takes long; standard error if nil.
	Progress func(line string)
}

func (o Options) withDefaults() Options {
	if o.ControlPlane == nil || o.Postgres == nil {
		panic("parts: ControlPlane and Postgres are required")
	}
	if o.Database == "" {
		o.Database = "gpubank"
	}
	if o.GPUs == 0 {
		o.GPUs = 8
	}
	if o.MeterInterval == 0 {
		o.MeterInterval = 5 * time.Second
	}
	if o.Progress == nil {
		o.Progress = func(line string) { fmt.Fprintln(os.Stderr, line) }
	}
	return o
}
