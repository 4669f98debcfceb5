package admission

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/gpubank/gpubank/test/cluster"
)

// processorTime is what each part has used, by its name. Where the cores are shared with others, latencies depend on them, and this hardly does.
type processorTime struct {
	servers []partTime // in the order in which a creation meets them
	clients time.Duration
}

type partTime struct {
	name string
	used time.Duration
}

// processorTime is what was used so far. clients is this process.
func (r *rig) processorTime() processorTime {
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		panic(err) // it fails for wrong arguments only
	}
	now := processorTime{clients: time.Duration(self.Utime.Nano() + self.Stime.Nano())}
	for _, part := range []*cluster.Process{r.controlPlane.APIServer, r.controlPlane.Etcd, r.bank.Webhook, r.postgres.Process} {
		now.servers = append(now.servers, partTime{part.Name(), part.CPUTime()})
	}
	return now
}

// perCreation is what was used since earlier for each of count creations. What the parts do without any is in it.
func (p processorTime) perCreation(earlier processorTime, count int) processorTime {
	each := processorTime{clients: (p.clients - earlier.clients) / time.Duration(count)}
	for i, part := range p.servers {
		each.servers = append(each.servers, partTime{part.name, (part.used - earlier.servers[i].used) / time.Duration(count)})
	}
	return each
}

// total of the servers.
func (p processorTime) total() time.Duration {
	var sum time.Duration
	for _, part := range p.servers {
		sum += part.used
	}
	return sum
}

func (p processorTime) String() string {
	var text []string
	for _, part := range p.servers {
		text = append(text, fmt.Sprintf("%s %d", part.name, part.used.Microseconds()))
	}
	return fmt.Sprintf("%d µs of processors (%s; clients besides %d)", p.total().Microseconds(), strings.Join(text, ", "), p.clients.Microseconds())
}
