package simulation

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// childVariable makes a process that calls ServeChild a writer.
const childVariable = "GPUBANK_SIMULATION_WRITER"

// childRequest is what a child process is asked over its standard input. The first one has the URL.
type childRequest struct {
	URL      string
	ID       uint64
	At       time.Time
	Patience time.Duration
	Async    bool
	Commands []ledger.Command
	// SetOffset sets the clock.
	SetOffset bool
	Offset    time.Duration
	// DieAfter kills the process when it has so many answers more: the last one never gets out.
	DieAfter int
}

// childReply is an answer.
type childReply struct {
	ID       uint64
	Verdicts []ledger.Verdict
	// Failure is the error's text; Unexpected says that no fault explains it.
	Failure    string
	Unexpected bool
}

func init() {
	for _, c := range []ledger.Command{
		ledger.SetAccount{}, ledger.RemoveAccount{}, ledger.SetRate{}, ledger.PostGrant{}, ledger.Adjust{}, ledger.Transfer{},
		ledger.FreezeAccount{}, ledger.UnfreezeAccount{}, ledger.PostDue{}, ledger.RenewHold{}, ledger.Refund{}, ledger.PlaceHold{}, ledger.EnsureHold{}, ledger.PauseHold{},
		ledger.CloseReservation{}, ledger.Allocate{}, ledger.AllocateGang{}, ledger.ConfirmBound{}, ledger.ReleaseAllocation{}, ledger.RecordStart{},
		ledger.RecordInterval{}, ledger.EndAllocation{}, ledger.MarkSuspect{}, ledger.ClearSuspect{},
	} {
		gob.Register(c)
	}
}

// ServeChild makes this process a writer of a simulation and never returns, if it was started as one. A program that runs
// simulations calls it first thing: its own executable is what they start.
func ServeChild() {
	if os.Getenv(childVariable) == "" {
		return
	}
	if err := serveChild(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "simulated writer:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveChild(in io.Reader, out io.Writer) error {
	requests, replies := gob.NewDecoder(bufio.NewReader(in)), gob.NewEncoder(out)
	var first childRequest
	if err := requests.Decode(&first); err != nil {
		return fmt.Errorf("read the database's URL: %w", err)
	}
	w, err := newLocalWriter(first.URL)
	if err != nil {
		return err
	}
	w.jump(first.Offset)
	s := &childServer{writer: w, replies: replies}
	for {
		var request childRequest
		err := requests.Decode(&request)
		switch {
		case errors.Is(err, io.EOF): // asked to end, or the parent is gone
			w.close()
			return nil
		case err != nil:
			return fmt.Errorf("read a request: %w", err)
		case request.SetOffset:
			w.jump(request.Offset)
		case request.DieAfter > 0:
			s.dieAfter(request.DieAfter)
		default:
			go s.answer(request)
		}
	}
}

type childServer struct {
	writer *localWriter

	mu      sync.Mutex
	replies *gob.Encoder
	left    int // answers until it dies; 0 for never
}

func (s *childServer) dieAfter(answers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = answers
}

func (s *childServer) answer(request childRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), request.Patience)
	defer cancel()
	reply := childReply{ID: request.ID}
	verdicts, err := s.writer.submit(ctx, request.At, request.Async, request.Commands)
	if err != nil {
		reply.Failure, reply.Unexpected = err.Error(), unexpected(err)
	} else {
		reply.Verdicts = verdicts
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.left > 0 {
		if s.left--; s.left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // durable, and nobody is told
			select {}
		}
	}
	if err := s.replies.Encode(reply); err != nil {
		os.Exit(1) // nobody listens any more
	}
}
