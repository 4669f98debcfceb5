package placement

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpubank/gpubank/pkg/placement"
)

// Trace is a cluster and the pods that are submitted to it.
type Trace struct {
	Name  string
	Nodes []placement.Node
	Pods  []placement.Request
	// MaxMilliCPU and MaxDevices are the most that one node has, which the simulator's best fit divides by.
	MaxMilliCPU int32
	MaxDevices  int16
}

// MilliGPU is the cluster's capacity, in thousandths of a device.
func (t *Trace) MilliGPU() int64 {
	var sum int64
	for i := range t.Nodes {
		sum += t.Nodes[i].MilliGPU()
	}
	return sum
}

// PublicSource is where anyone finds the files.
const PublicSource = "https://github.com/hkust-adsl/kubernetes-scheduler-simulator, folder data/csv (openb_*.csv; Apache-2.0)"

const (
	nodeFile  = "openb_node_list_gpu_node.csv"
	podPrefix = "openb_pod_list_"
)

// Load reads traces from a folder: those named, separated by commas, or all.
func Load(folder, names string) ([]*Trace, error) {
	files, err := openFolder(folder)
	if err != nil {
		return nil, err
	}
	chosen, err := files.names()
	if err != nil {
		return nil, err
	}
	if names != "" {
		chosen = strings.Split(names, ",")
	}
	var traces []*Trace
	for _, name := range chosen {
		trace, err := files.trace(shortName(name))
		if err != nil {
			return nil, err
		}
		traces = append(traces, trace)
	}
	return traces, nil
}

// openb reads the files of one folder.
type openb struct {
	folder string
	models map[string]uint16
	nodes  []placement.Node
}

func openFolder(folder string) (*openb, error) {
	if folder == "" {
		return nil, fmt.Errorf("OPENB_DIR is not set: it names the folder with %s and the pod lists, which are public at %s", nodeFile, PublicSource)
	}
	o := &openb{folder: folder, models: map[string]uint16{}}
	err := o.read(nodeFile, func(row record) error {
		node := placement.Node{MilliCPU: row.number("cpu_milli"), MemoryMiB: row.number("memory_mib"), Whole: int16(row.number("gpu"))}
		if node.Whole > placement.MaxDevices {
			return fmt.Errorf("a node with %d GPUs; at most %d are told apart", node.Whole, placement.MaxDevices)
		}
		var err error
		node.Class, err = o.model(row.text("model"))
		o.nodes = append(o.nodes, node)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("OPENB_DIR=%s has no %s; it is public at %s", folder, nodeFile, PublicSource)
	}
	return o, err
}

// names are those of all pod lists in the folder.
func (o *openb) names() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(o.folder, podPrefix+"*.csv"))
	if err != nil {
		return nil, fmt.Errorf("list the pod lists of %s: %w", o.folder, err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("OPENB_DIR=%s has no %s*.csv; they are public at %s", o.folder, podPrefix, PublicSource)
	}
	for i, path := range paths {
		paths[i] = shortName(filepath.Base(path))
	}
	return paths, nil
}

// trace reads one pod list.
func (o *openb) trace(name string) (*Trace, error) {
	t := &Trace{Name: name, Nodes: o.nodes}
	err := o.read(podPrefix+name+".csv", func(row record) error {
		pod := placement.Request{
			MilliCPU: row.number("cpu_milli"), MemoryMiB: row.number("memory_mib"),
			Devices: int16(row.number("num_gpu")), Milli: int16(row.number("gpu_milli")),
		}
		switch {
		case pod.Devices == 0:
			pod.Milli = 0
		case pod.Devices > 1:
			pod.Milli = placement.WholeDevice
		}
		for model := range strings.SplitSeq(row.text("gpu_spec"), "|") {
			if model == "" {
				continue
			}
			class, err := o.model(model)
			if err != nil {
				return err
			}
			pod.Classes |= 1 << class
		}
		t.Pods = append(t.Pods, pod)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		known, _ := o.names()
		return nil, fmt.Errorf("there is no trace %q in OPENB_DIR=%s; there are: %s", name, o.folder, strings.Join(known, ", "))
	}
	t.measure()
	return t, err
}

func (t *Trace) measure() {
	for i := range t.Nodes {
		t.MaxMilliCPU = max(t.MaxMilliCPU, t.Nodes[i].MilliCPU)
		t.MaxDevices = max(t.MaxDevices, t.Nodes[i].Whole)
	}
}

func (o *openb) model(name string) (uint16, error) {
	class, known := o.models[name]
	if !known {
		if len(o.models) == 64 {
			return 0, fmt.Errorf("GPU model %q is the 65th; a request tells 64 apart", name)
		}
		class = uint16(len(o.models))
		o.models[name] = class
	}
	return class, nil
}

// record is one row of a file with a heading. Its first error is kept.
type record struct {
	column map[string]int
	fields []string
	err    *error
}

// text is empty for a column that the file does not have.
func (r record) text(name string) string {
	if at, has := r.column[name]; has {
		return strings.TrimSpace(r.fields[at])
	}
	return ""
}

func (r record) number(name string) int32 {
	text := r.text(name)
	value, err := strconv.ParseInt(text, 10, 32)
	if (err != nil || value < 0) && *r.err == nil {
		*r.err = fmt.Errorf("column %s is %q, not a number from 0 to 2147483647", name, text)
	}
	return int32(value)
}

func (o *openb) read(name string, each func(record) error) error {
	path := filepath.Join(o.folder, name)
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return fmt.Errorf("read trace %s: %w", path, err)
	}
	if len(rows) < 2 {
		return fmt.Errorf("read trace %s: it has no rows", path)
	}
	column := map[string]int{}
	for at, name := range rows[0] {
		column[name] = at
	}
	for line, fields := range slices.All(rows[1:]) {
		var bad error
		err := each(record{column, fields, &bad})
		if err := errors.Join(bad, err); err != nil {
			return fmt.Errorf("read trace %s, line %d: %w", path, line+2, err)
		}
	}
	return nil
}
