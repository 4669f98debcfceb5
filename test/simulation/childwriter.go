package simulation

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/gpubank/gpubank/pkg/ledger"
)

var (
	// errChildDied says that a child process ended before it answered.
	errChildDied = errors.New("the writer's process died before it answered")
	// errNoAnswer is what a store in a child process said when it had no answer.
	errNoAnswer = errors.New("the writer's process has no answer")
)

// childWriter is a store in a child process, which is started again whenever it dies.
type childWriter struct {
	url   string
	died  func() // told of every death that was not asked for by close
	ended sync.WaitGroup

	mu      sync.Mutex
	process *childProcess // nil while it is being started, and after close
	offset  time.Duration
	closed  bool
}

// childProcess is one life of it.
type childProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser

	mu      sync.Mutex
	encoder *gob.Encoder
	number  uint64
	waiting map[uint64]chan childReply
	dead    bool
}

func newChildWriter(url string, died func()) (*childWriter, error) {
	w := &childWriter{url: url, died: died}
	return w, w.start()
}

func (w *childWriter) start() error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start a writer: %w", err)
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	// It ends with its standard input, so also when this process is killed.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start a writer: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start a writer: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a writer: %w", err)
	}
	p := &childProcess{cmd: cmd, stdin: stdin, encoder: gob.NewEncoder(stdin), waiting: make(map[uint64]chan childReply)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := p.send(childRequest{URL: w.url, Offset: w.offset}); err != nil {
		return err
	}
	w.process = p
	w.ended.Go(func() { w.watch(p, stdout) })
	return nil
}

// watch hands out replies until the process ends, and starts the next one.
func (w *childWriter) watch(p *childProcess, stdout io.Reader) {
	replies := gob.NewDecoder(bufio.NewReader(stdout))
	for {
		var reply childReply
		if replies.Decode(&reply) != nil {
			break
		}
		p.mu.Lock()
		waiting := p.waiting[reply.ID]
		delete(p.waiting, reply.ID)
		p.mu.Unlock()
		if waiting != nil {
			waiting <- reply
		}
	}
	_ = p.cmd.Process.Kill() // it may have closed its output without ending
	_ = p.cmd.Wait()
	p.mu.Lock()
	p.dead = true
	for id, waiting := range p.waiting {
		close(waiting)
		delete(p.waiting, id)
	}
	p.mu.Unlock()
	w.mu.Lock()
	closed := w.closed
	w.process = nil
	w.mu.Unlock()
	if !closed {
		w.died()
		if err := w.start(); err != nil {
			fmt.Fprintln(os.Stderr, "simulation:", err)
		}
	}
}

func (p *childProcess) send(request childRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errChildDied
	}
	if err := p.encoder.Encode(request); err != nil {
		return fmt.Errorf("%w: %w", errChildDied, err)
	}
	return nil
}

// ask sends a request and returns where the reply comes; the channel is closed when the process dies first.
func (p *childProcess) ask(request childRequest) (<-chan childReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, errChildDied
	}
	p.number++
	request.ID = p.number
	reply := make(chan childReply, 1)
	p.waiting[request.ID] = reply
	if err := p.encoder.Encode(request); err != nil {
		delete(p.waiting, request.ID)
		return nil, fmt.Errorf("%w: %w", errChildDied, err)
	}
	return reply, nil
}

func (w *childWriter) current() (*childProcess, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil {
		return nil, errChildDied
	}
	return w.process, nil
}

func (w *childWriter) submit(ctx context.Context, at time.Time, async bool, commands []ledger.Command) ([]ledger.Verdict, error) {
	p, err := w.current()
	if err != nil {
		return nil, err
	}
	patience := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		patience = time.Until(deadline)
	}
	replies, err := p.ask(childRequest{At: at, Patience: patience, Async: async, Commands: commands})
	if err != nil {
		return nil, err
	}
	select {
	case reply, alive := <-replies:
		switch {
		case !alive:
			return nil, errChildDied
		case reply.Unexpected:
			return nil, errors.New(reply.Failure)
		case reply.Failure != "":
			return nil, fmt.Errorf("%w: %s", errNoAnswer, reply.Failure)
		}
		return reply.Verdicts, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *childWriter) jump(offset time.Duration) {
	w.mu.Lock()
	w.offset = offset
	p := w.process
	w.mu.Unlock()
	if p != nil {
		_ = p.send(childRequest{SetOffset: true, Offset: offset})
	}
}

// dieBeforeReply lets the process give so many answers, less one, and then die with one it does not give.
func (w *childWriter) dieBeforeReply(answers int) {
	if p, err := w.current(); err == nil {
		_ = p.send(childRequest{DieAfter: answers})
	}
}

// kill is SIGKILL, at once.
func (w *childWriter) kill() {
	if p, err := w.current(); err == nil {
		_ = p.cmd.Process.Kill()
	}
}

// restart asks the process to end in order; the next one starts by itself.
func (w *childWriter) restart() error {
	if p, err := w.current(); err == nil {
		return p.stdin.Close()
	}
	return nil
}

func (w *childWriter) close() {
	w.mu.Lock()
	w.closed = true
	p := w.process
	w.mu.Unlock()
	if p != nil {
		_ = p.stdin.Close()
	}
	w.ended.Wait()
}
