package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// proxy is the network between one writer and PostgreSQL.
type proxy struct {
	*toxiproxy.Proxy
	url string // of the database, through it
	// stopping is held while the proxy is stopped: two faults may overlap.
	stopping sync.Mutex
}

func newProxy(name, databaseURL string) (*proxy, error) {
	target, err := url.Parse(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("proxy for %s: the database's URL cannot be read", name)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := &proxy{Proxy: toxiproxy.NewProxy(server, name, "127.0.0.1:0", target.Host)}
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("proxy for %s: %w", name, err)
	}
	target.Host = p.Listen
	p.url = target.String()
	return p, nil
}

// poison adds toxics for a while. It returns when they are gone again.
func (p *proxy) poison(ctx context.Context, f Fault, number int) error {
	toxic := func(kind, stream string, attributes map[string]any) map[string]any {
		return map[string]any{"name": fmt.Sprintf("%d-%s-%s", number, kind, stream), "type": kind, "stream": stream, "attributes": attributes}
	}
	var toxics []map[string]any
	delay := f.Delay.Milliseconds()
	switch f.Kind {
	case FaultLatency:
		toxics = append(toxics, toxic("latency", "downstream", map[string]any{"latency": delay, "jitter": delay / 2}))
	case FaultSlicer:
		toxics = append(toxics, toxic("slicer", "downstream", map[string]any{"average_size": 700, "size_variation": 600, "delay": 100}))
	case FaultReset:
		toxics = append(toxics, toxic("reset_peer", "upstream", map[string]any{"timeout": 0}), toxic("reset_peer", "downstream", map[string]any{"timeout": 0}))
	case FaultHalfOpen:
		toxics = append(toxics, toxic("timeout", "downstream", map[string]any{"timeout": 0}))
	case FaultMute:
		toxics = append(toxics, toxic("timeout", "upstream", map[string]any{"timeout": 0}))
	case FaultCut:
		toxics = append(toxics, toxic("limit_data", "downstream", map[string]any{"bytes": f.Bytes}))
	case FaultSlowClose:
		toxics = append(toxics, toxic("limit_data", "downstream", map[string]any{"bytes": f.Bytes}), toxic("slow_close", "upstream", map[string]any{"delay": 10 * delay}))
	case FaultUnreachable:
		p.stopping.Lock()
		defer p.stopping.Unlock()
		p.Stop()
		rest(ctx, f.For)
		return p.Start()
	}
	for _, t := range toxics {
		text, err := json.Marshal(t)
		if err == nil {
			_, err = p.Toxics.AddToxicJson(bytes.NewReader(text))
		}
		if err != nil {
			return fmt.Errorf("add toxic %v: %w", t, err)
		}
	}
	rest(ctx, f.For)
	for _, t := range toxics {
		// It waits for data that a toxic holds back; a connection that is stuck is closed by that.
		patience, cancel := context.WithTimeout(context.Background(), time.Second)
		err := p.Toxics.RemoveToxic(patience, t["name"].(string))
		cancel()
		if err != nil {
			return fmt.Errorf("remove toxic %v: %w", t, err)
		}
	}
	return nil
}

// rest waits; faults last for real time, since what they disturb takes real time.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
