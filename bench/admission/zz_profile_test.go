//go:build profile

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpubank/gpubank/test/cluster/parts"
)

func cpuOf(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndex(s, ")")+2:])
	u, _ := strconv.Atoi(f[11])
	k, _ := strconv.Atoi(f[12])
	return time.Duration(u+k) * 10 * time.Millisecond
}

func children(pid int) (out []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, d := range dirs {
		b, err := os.ReadFile(d)
		if err != nil {
			continue
		}
		s := string(b)
		f := strings.Fields(s[strings.LastIndex(s, ")")+2:])
		if f[1] == strconv.Itoa(pid) {
			p, _ := strconv.Atoi(strings.Split(d, "/")[2])
			out = append(out, p)
		}
	}
	return out
}

func (r *rig) cpu() map[string]time.Duration {
	m := map[string]time.Duration{
		"apiserver": cpuOf(r.controlPlane.APIServer.PID()),
		"etcd":      cpuOf(r.controlPlane.Etcd.PID()),
		"webhook":   cpuOf(r.bank.Webhook.PID()),
		"postgres":  cpuOf(r.postgres.PID()),
		"client":    cpuOf(os.Getpid()),
	}
	for _, c := range children(r.postgres.PID()) {
		m["postgres"] += cpuOf(c)
	}
	return m
}

func TestProfile(t *testing.T) {
	ctx := t.Context()
	r, err := newRig(ctx, func(l string) { t.Log(l) })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n, _ := strconv.Atoi(os.Getenv("PROFILE_N"))
	if n == 0 {
		n = 400
	}
	blocks := 8
	total := map[string]map[string]time.Duration{enrolled: {}, notEnrolled: {}}
	lat := map[string][]time.Duration{}
	one := func(ns, name string) {
		body, _ := json.Marshal(job(name))
		s := time.Now()
		err := r.client.BatchV1().RESTClient().Post().Namespace(ns).Resource("jobs").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
		if err != nil {
			t.Fatal(err)
		}
		lat[ns] = append(lat[ns], time.Since(s))
	}
	for i := range 100 {
		one(enrolled, fmt.Sprint("warm-", i))
		one(notEnrolled, fmt.Sprint("warm-", i))
	}
	lat = map[string][]time.Duration{}
	for b := range blocks {
		for _, ns := range []string{enrolled, notEnrolled} {
			before := r.cpu()
			for i := range n / blocks {
				one(ns, fmt.Sprintf("p-%d-%d", b, i))
			}
			after := r.cpu()
			for k := range after {
				total[ns][k] += after[k] - before[k]
			}
		}
	}
	for _, ns := range []string{enrolled, notEnrolled} {
		slices.Sort(lat[ns])
		t.Logf("%-16s p10 %v p50 %v p99 %v", ns, at(lat[ns], .1), at(lat[ns], .5), at(lat[ns], .99))
		var sum time.Duration
		for _, k := range []string{"apiserver", "etcd", "webhook", "postgres", "client"} {
			t.Logf("    %-10s %v per creation", k, total[ns][k]/time.Duration(n))
			sum += total[ns][k]
		}
		t.Logf("    sum %v", sum/time.Duration(n))
	}
	if out := os.Getenv("PROFILE_OUT"); out != "" {
		var wg sync.WaitGroup
		ctx2, cancel := context.WithCancel(ctx)
		wg.Go(func() {
			defer cancel()
			wg.Go(func() { fetch(t, "http://127.0.0.1:6061/debug/pprof/profile?seconds=20", filepath.Join(out, "webhook.pprof")) })
			b, err := r.client.BatchV1().RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", "20").Do(ctx).Raw()
			if err != nil {
				t.Error(err)
			}
			os.WriteFile(filepath.Join(out, "apiserver.pprof"), b, 0o644)
		})
		ns := os.Getenv("PROFILE_NS")
		if ns == "" {
			ns = enrolled
		}
		for i := 0; ctx2.Err() == nil; i++ {
			one(ns, fmt.Sprintf("q-%d", i))
		}
		wg.Wait()
		b, _ := r.client.BatchV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
		os.WriteFile(filepath.Join(out, "apiserver.metrics"), b, 0o644)
	}
}

func fetch(t *testing.T, url, file string) {
	resp, err := http.Get(url)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	os.WriteFile(file, b, 0o644)
}
