package intake

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/gpubank/gpubank/internal/failpoint"
	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/meter/intakeapi"
)

const (
	// commitTimeout bounds the wait for one group commit; the agent's own timeout is three times this.
	commitTimeout = 10 * time.Second
	// nodeConcurrency is how many requests of one node are served at once: an agent is one process that sends one
	// after another, and the second slot is for its restart.
	nodeConcurrency = 2
	// retryAfter is what an agent is asked to wait when the intake cannot answer now.
	retryAfter = 2 * time.Second
	// maxHeaderBytes leaves room for a service-account token (about 1.5 KiB) and little else.
	maxHeaderBytes = 16 << 10
)

// Ledger is what the intake needs of the store.
type Ledger interface {
	// SubmitAll returns one verdict per command, in order, after the commit is durable.
	SubmitAll(ctx context.Context, commands []ledger.Command) ([]ledger.Verdict, error)
	// RegisterNodeAgent returns a higher epoch for each new holder, and the same one for the same holder.
	RegisterNodeAgent(ctx context.Context, node, holder string) (int64, error)
	// RecordDeviceFaults keeps all of them, or reports false when the epoch is not the node's current one.
	RecordDeviceFaults(ctx context.Context, node string, epoch int64, faults []ledger.DeviceFault) (bool, error)
}

// Options configure a Server. Every field is required.
type Options struct {
	// Address to listen on, host:port.
	Address string
	// Certificate returns the current serving certificate for each handshake, so that rotation needs no restart.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Ledger      Ledger
	Reviewer    TokenReviewer
	// AgentUser is the only user that may report: system:serviceaccount:<namespace>:<name>.
	AgentUser string
	Clock     clock.PassiveClock
	Metrics   *Metrics
	Logger    logr.Logger
}

// Server is the meter intake. It implements manager.Runnable and runs on every replica.
type Server struct {
	options       Options
	authenticator *authenticator

	mu   sync.Mutex
	busy map[string]int // node → requests being served
}

// New returns a server that is not yet listening.
func New(options Options) *Server {
	return &Server{
		options: options,
		busy:    map[string]int{},
		authenticator: &authenticator{
			reviewer: options.Reviewer, agentUser: options.AgentUser, clock: options.Clock,
			cache: map[[32]byte]confirmed{},
		},
	}
}

// NeedLeaderElection is false: charging is safe from any replica, because the ledger decides.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends, then lets requests in progress finish.
func (s *Server) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("listen for node agents on %s: %w", s.options.Address, err)
	}
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      commitTimeout + 20*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.options.Certificate},
		BaseContext: func(net.Listener) context.Context {
			return logr.NewContext(context.WithoutCancel(ctx), s.options.Logger)
		},
	}
	s.options.Logger.Info("Meter intake is listening", "address", listener.Addr().String())
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve node agents: %w", err)
	case <-ctx.Done():
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		return server.Shutdown(drain)
	}
}

// Handler serves the endpoints of intakeapi.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+intakeapi.RegisterPath, s.authenticated(s.register))
	mux.HandleFunc("POST "+intakeapi.IntervalsPath, s.authenticated(s.intervals))
	mux.HandleFunc("POST "+intakeapi.FaultsPath, s.authenticated(s.faults))
	return mux
}

// authenticated admits a request that a node agent's token accompanies, within the node's share of the server.
func (s *Server) authenticated(serve func(node string, request *http.Request) (any, error)) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		node, refused := s.authenticator.authenticate(request)
		if refused != nil {
			s.refuse(writer, node, refused)
			return
		}
		if !s.enter(node) {
			s.refuse(writer, node, &refusal{http.StatusTooManyRequests, "busy", "this node's earlier requests are still being served"})
			return
		}
		defer s.leave(node)
		request.Body = http.MaxBytesReader(writer, request.Body, intakeapi.MaxBodyBytes)
		answer, err := serve(node, request)
		if err != nil {
			s.refuse(writer, node, asRefusal(err))
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(writer).Encode(answer); err != nil {
			s.options.Logger.V(1).Info("Answer did not reach the node agent, which will ask again", "node", node, "error", err.Error())
		}
	}
}

func (s *Server) register(node string, request *http.Request) (any, error) {
	var body intakeapi.RegisterRequest
	if err := decode(request.Body, &body); err != nil {
		return nil, err
	}
	if err := speaksFor(node, body.Node); err != nil {
		return nil, err
	}
	if body.Holder == "" || len(body.Holder) > 253 {
		return nil, errors.New("holder must be 1 to 253 bytes, random for each process")
	}
	ctx, cancel := context.WithTimeout(request.Context(), commitTimeout)
	defer cancel()
	epoch, err := s.options.Ledger.RegisterNodeAgent(ctx, node, body.Holder)
	if err != nil {
		return nil, s.unavailable(err, "register node agent", node)
	}
	s.options.Logger.Info("Node agent registered", "node", node, "epoch", epoch)
	return intakeapi.RegisterResponse{Epoch: epoch}, nil
}

func (s *Server) intervals(node string, request *http.Request) (any, error) {
	var body intakeapi.IntervalsRequest
	if err := decode(request.Body, &body); err != nil {
		return nil, err
	}
	if err := speaksFor(node, body.Node); err != nil {
		return nil, err
	}
	if err := checkReport(body); err != nil {
		return nil, err
	}
	results, err := s.charge(request.Context(), node, body)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("controller.after-charge-before-ack")
	for _, r := range results {
		s.options.Metrics.intervals.WithLabelValues(string(r.Outcome), r.Code).Inc()
	}
	return intakeapi.IntervalsResponse{Results: results}, nil
}

// faults keeps what the driver of the node says of its GPUs. It moves no money: the controller asks for it when an attempt
// has failed.
func (s *Server) faults(node string, request *http.Request) (any, error) {
	var body intakeapi.FaultsRequest
	if err := decode(request.Body, &body); err != nil {
		return nil, err
	}
	if err := speaksFor(node, body.Node); err != nil {
		return nil, err
	}
	if err := checkFaults(body, s.options.Clock.Now()); err != nil {
		return nil, err
	}
	kept := make([]ledger.DeviceFault, len(body.Faults))
	for i, fault := range body.Faults {
		kept[i] = ledger.DeviceFault{Node: node, GPUUUID: fault.GPUUUID, XID: fault.XID, Since: fault.Since.UTC(), At: fault.At.UTC()}
	}
	ctx, cancel := context.WithTimeout(request.Context(), commitTimeout)
	defer cancel()
	current, err := s.options.Ledger.RecordDeviceFaults(ctx, node, body.Epoch, kept)
	switch {
	case err != nil:
		return nil, s.unavailable(err, "keep device faults", node)
	case !current:
		return nil, staleEpoch(fmt.Sprintf("the agent of node %s reports under epoch %d, and a newer one has registered", node, body.Epoch))
	}
	for _, fault := range body.Faults {
		s.options.Metrics.faults.WithLabelValues(strconv.FormatInt(fault.XID, 10)).Inc()
		s.options.Logger.Info("GPU fault reported", "node", node, "gpu", fault.GPUUUID, "xid", fault.XID, "at", fault.At)
	}
	return intakeapi.FaultsResponse{Kept: len(kept)}, nil
}

// charge asks the ledger about every well-formed interval in one batch.
func (s *Server) charge(ctx context.Context, node string, body intakeapi.IntervalsRequest) ([]intakeapi.Result, error) {
	results := make([]intakeapi.Result, len(body.Intervals))
	var asked []int
	var commands []ledger.Command
	for i, interval := range body.Intervals {
		if malformed := checkInterval(interval); malformed != nil {
			results[i] = *malformed
			continue
		}
		asked = append(asked, i)
		commands = append(commands, command(node, body.Epoch, interval))
	}
	if len(commands) == 0 {
		return results, nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	verdicts, err := s.options.Ledger.SubmitAll(ctx, commands)
	if err != nil {
		return nil, s.unavailable(err, "charge intervals", node)
	}
	for n, i := range asked {
		if refusal := verdicts[n].Refusal; refusal != nil && refusal.Code == ledger.StaleEpoch {
			return nil, staleEpoch(refusal.Message)
		}
		results[i] = result(body.Intervals[i], verdicts[n], s.options.Clock.Now())
	}
	return results, nil
}

// speaksFor refuses a report for another node than the token's.
func speaksFor(node, claimed string) error {
	if node != claimed {
		return &refusal{http.StatusForbidden, "wrong_node", fmt.Sprintf("the token was issued on node %q, the request speaks for %q", node, claimed)}
	}
	return nil
}

// staleEpoch tells an agent that a newer one of its node has registered.
func staleEpoch(message string) *refusal {
	return &refusal{http.StatusConflict, "stale_epoch", message}
}

// unavailable reports a failure of the world: the agent keeps everything and asks again.
func (s *Server) unavailable(err error, doing, node string) *refusal {
	s.options.Logger.Error(err, "Ledger did not answer the meter intake", "doing", doing, "node", node)
	return &refusal{http.StatusServiceUnavailable, "ledger_unavailable", "the ledger does not answer; send again later"}
}

func (s *Server) refuse(writer http.ResponseWriter, node string, refused *refusal) {
	s.options.Metrics.refused.WithLabelValues(refused.reason).Inc()
	s.options.Logger.V(1).Info("Refused a request to the meter intake", "node", node, "status", refused.status, "reason", refused.reason)
	if refused.status == http.StatusServiceUnavailable || refused.status == http.StatusTooManyRequests {
		writer.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(refused.status)
	_ = json.NewEncoder(writer).Encode(intakeapi.ErrorResponse{Message: refused.message})
}

func (s *Server) enter(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[node] >= nodeConcurrency {
		return false
	}
	s.busy[node]++
	return true
}

func (s *Server) leave(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[node]--; s.busy[node] == 0 {
		delete(s.busy, node)
	}
}
