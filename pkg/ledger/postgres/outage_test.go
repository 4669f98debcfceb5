package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
	lt "github.com/gpubank/gpubank/pkg/ledger/ledgertest"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster/clustertest"
)

// L38, PostgreSQL killed and started again under load: every command is carried out exactly once, nobody is told
// "insufficient credits" (L15), and everything resumes by itself.
func TestPostgresKilledUnderLoad(t *testing.T) {
	t.Parallel()
	pg := clustertest.OwnPostgres(t)
	address, err := pg.CreateDatabase(t.Context(), "outage")
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, url: address}
	f.store = f.open(postgres.Options{})
	f.do(lt.Account("team", "", 0), lt.Rate(), lt.Grant("first", "team", 1_000_000))

	const callers, each = 16, 60
	var done atomic.Int64
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			for i := range each {
				v, err := f.store.Submit(t.Context(), lt.Hold(fmt.Sprintf("job-%d-%d", n, i), "team", 1, 1))
				if err != nil || v.Refusal != nil {
					t.Errorf("caller %d, hold %d: %+v, %v", n, i, v.Refusal, err)
					return
				}
				done.Add(1)
			}
		})
	}
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	for round := range 3 {
		waitFor(t, finished, func() bool { return done.Load() >= int64((round+1)*callers*each/5) })
		if err := pg.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := pg.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	<-finished
	f.figures("team", 1_000_000, callers*each, 0)
	f.audit()
}

// waitFor polls a condition that other goroutines bring about, until over is closed.
func waitFor(t *testing.T, over <-chan struct{}, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-over:
			return
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("the test ended first")
		}
	}
}

// While PostgreSQL is away: Open and Start succeed, Submit says unavailable when its caller gives up, a full queue is
// an error of its own, and what was started is carried out when PostgreSQL is back.
func TestPostgresAway(t *testing.T) {
	t.Parallel()
	pg := clustertest.OwnPostgres(t)
	address, err := pg.CreateDatabase(t.Context(), "away")
	if err != nil {
		t.Fatal(err)
	}
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, url: address}
	f.store = f.open(postgres.Options{QueueLimit: 10})
	pending := f.store.Start(lt.Account("team", "", 0))
	more := f.store.Start(lt.Grant("1", "team", 5))

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = f.store.Submit(ctx, lt.Grant("given-up", "team", 1_000))
	var unavailable *postgres.UnavailableError
	if !errors.As(err, &unavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Submit while PostgreSQL is away: %v", err)
	}
	if err := f.store.Ping(t.Context()); !errors.As(err, &unavailable) {
		t.Errorf("Ping while PostgreSQL is away: %v", err)
	}
	if _, err := f.store.Quote(t.Context(), lt.Hold("job", "team", 1, 1)); !errors.As(err, &unavailable) {
		t.Errorf("Quote while PostgreSQL is away: %v", err)
	}
	full := f.store.Start(lt.Grant("2", "team", 1))
	for i := 3; ; i++ {
		full = f.store.Start(lt.Grant(fmt.Sprint(i), "team", 1))
		ended, endNow := context.WithCancel(t.Context())
		endNow()
		if _, err = full.Wait(ended); errors.Is(err, postgres.ErrQueueFull) {
			break
		}
		if i > 100 {
			t.Fatal("the queue never fills")
		}
	}

	if err := pg.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A database that is not migrated yet is "away" too: what waits goes on waiting.
	if err := postgres.Migrate(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*postgres.Pending{pending, more} {
		if v, err := p.Wait(t.Context()); err != nil || v.Refusal != nil {
			t.Errorf("a started command: %+v, %v", v.Refusal, err)
		}
	}
	if a, _, err := f.store.Account(t.Context(), "team"); err != nil || a.Balance >= 1_000*ledger.Credit {
		t.Errorf("the grant that was given up before it was tried: balance %d, %v", a.Balance, err)
	}
	f.store.Close()
	if _, err := f.store.Submit(t.Context(), lt.Rate()); !errors.Is(err, postgres.ErrClosed) {
		t.Errorf("Submit after Close: %v", err)
	}
}

// The connection breaks after any number of answered bytes, so also between the durable commit and its answer. The
// command is repeated under its key and carried out once.
func TestConnectionCutAnywhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.do(lt.Account("team", "", 0))
	grants := int64(0)
	for limit := int64(300); ; limit += 97 {
		proxy := newCuttingProxy(t, f.url, limit)
		store, err := postgres.Open(t.Context(), proxy.url, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		v, err := store.Submit(t.Context(), lt.Grant(fmt.Sprint(limit), "team", 1))
		if err != nil || v.Refusal != nil {
			t.Fatalf("cut after %d bytes: %+v, %v", limit, v.Refusal, err)
		}
		store.Close()
		grants++
		f.figures("team", grants, 0, 0)
		if !proxy.cut.Load() {
			break // the whole conversation is shorter: every place was tried
		}
	}
	if grants < 10 {
		t.Errorf("only %d places were tried", grants)
	}
}

// cuttingProxy passes connections through to a server; the first one is cut after some answered bytes.
type cuttingProxy struct {
	url string
	cut atomic.Bool
}

func newCuttingProxy(t *testing.T, server string, limit int64) *cuttingProxy {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	upstream := target.Host
	target.Host = listener.Addr().String()
	p := &cuttingProxy{url: target.String()}
	go func() {
		for first := true; ; first = false {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			allowed := limit
			if !first {
				allowed = 1 << 40
			}
			go p.pass(client, upstream, allowed)
		}
	}()
	return p
}

func (p *cuttingProxy) pass(client net.Conn, upstream string, allowed int64) {
	defer client.Close()
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	defer server.Close()
	go io.Copy(server, client)
	if passed, _ := io.CopyN(client, server, allowed); passed == allowed {
		// What was sent up is executed all the same: read on, and let the client wait in vain no longer.
		p.cut.Store(true)
		client.Close()
		server.SetReadDeadline(time.Now().Add(time.Second))
		io.Copy(io.Discard, server)
	}
}

// A lock that another client holds too long fails the attempt, not the command.
func TestLockHeldByAnotherClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.do(lt.Account("team", "", 0))
	release := holdLock(t, f, "SELECT FROM account FOR UPDATE")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var unavailable *postgres.UnavailableError
	if _, err := f.store.Submit(ctx, lt.Grant("1", "team", 1)); !errors.As(err, &unavailable) {
		t.Errorf("Submit under a lock: %v", err)
	}
	pending := f.store.Start(lt.Grant("2", "team", 1))
	release()
	if v, err := pending.Wait(t.Context()); err != nil || v.Refusal != nil {
		t.Errorf("after the lock: %+v, %v", v.Refusal, err)
	}
}

// The URL holds a password: no error may repeat it.
func TestURLIsNeverShown(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for _, address := range []string{
		"postgres://user:" + secret + "@127.0.0.1:1/db?sslmode=disable&connect_timeout=1",
		"postgres://user:" + secret + "@host:port/db",
		"host=x password=" + secret + " port=none",
		"\x00" + secret,
	} {
		errs := []error{postgres.Migrate(t.Context(), address)}
		store, err := postgres.Open(t.Context(), address, postgres.Options{})
		errs = append(errs, err)
		if err == nil {
			errs = append(errs, store.Ping(t.Context()))
			store.Close()
		}
		for _, err := range errs {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the password is in %q", err)
			}
		}
	}
}

// Closing a store while PostgreSQL is away answers what waits, at once. A command of a kind that does not exist panics
// in its caller, not in the worker that serves everybody.
func TestCloseWhileAway(t *testing.T) {
	t.Parallel()
	store, err := postgres.Open(t.Context(), "postgres://nobody@127.0.0.1:1/none", postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a pointer to a command was taken")
			}
		}()
		store.Start(&ledger.PostGrant{Key: "k"})
	}()
	pending := store.Start(lt.Grant("1", "team", 1))
	store.Close()
	if _, err := pending.Wait(t.Context()); !errors.Is(err, postgres.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
