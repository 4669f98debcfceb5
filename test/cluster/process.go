package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Command describes a program to run. Path, Name and LogFile are required.
type Command struct {
	Name    string // what messages call it, such as "kube-apiserver"
	Path    string
	Args    []string
	Env     []string // added to this process's environment
	Dir     string   // working directory; this process's own if empty
	LogFile string   // stdout and stderr are appended here

	// Credential is whom to run as; nil for the current user.
	Credential *syscall.Credential
	// ParentDeath is the signal that the kernel sends when this program dies; SIGKILL if zero.
	ParentDeath syscall.Signal
	// StopSignal asks for an orderly end; SIGTERM if zero. StopGrace is how long it has before SIGKILL; 15 s if zero.
	StopSignal syscall.Signal
	StopGrace  time.Duration

	// Ready reports nil once the program serves. It is asked until then; nil means ready when started.
	Ready func(ctx context.Context) error
	// ReadyTimeout bounds that wait; 60 s if zero.
	ReadyTimeout time.Duration
}

// Process is a program that can be stopped, killed, paused and started again with the same command.
//
// Each run is the leader of its own process group, so that Ctrl-C in a terminal reaches only this program, which then
// ends its children in order; and each carries a parent-death signal, so that nothing is left when this program is
// killed. Methods are safe for concurrent use.
type Process struct {
	command Command

	mu  sync.Mutex
	run *processRun // nil before the first Start
}

type processRun struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once err is set
	err    error
}

// NewProcess prepares a program without starting it.
func NewProcess(command Command) *Process {
	if command.Name == "" || command.Path == "" || command.LogFile == "" {
		panic("cluster.NewProcess: Name, Path and LogFile are required")
	}
	if command.ParentDeath == 0 {
		command.ParentDeath = syscall.SIGKILL
	}
	if command.StopSignal == 0 {
		command.StopSignal = syscall.SIGTERM
	}
	if command.StopGrace == 0 {
		command.StopGrace = 15 * time.Second
	}
	if command.ReadyTimeout == 0 {
		command.ReadyTimeout = 60 * time.Second
	}
	return &Process{command: command}
}

// Name is the command's name.
func (p *Process) Name() string { return p.command.Name }

// LogFile is where its output goes.
func (p *Process) LogFile() string { return p.command.LogFile }

// SetArgs changes the arguments of the next Start.
func (p *Process) SetArgs(args ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.command.Args = args
}

// SetEnv changes the additional environment of the next Start, for example to arm a failpoint.
func (p *Process) SetEnv(env ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.command.Env = env
}

// SetReady changes the question that Start asks until the program is ready.
func (p *Process) SetReady(ready func(ctx context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.command.Ready = ready
}

// Start runs the program and waits until it is ready. If it exits before that, the error carries the end of its log.
func (p *Process) Start(ctx context.Context) error {
	if err := p.Launch(); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

// Launch runs the program without waiting for readiness.
func (p *Process) Launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && !p.run.over() {
		return fmt.Errorf("start %s: already running as process %d", p.command.Name, p.run.cmd.Process.Pid)
	}
	if err := os.MkdirAll(filepath.Dir(p.command.LogFile), 0o755); err != nil {
		return fmt.Errorf("start %s: %w", p.command.Name, err)
	}
	log, err := os.OpenFile(p.command.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.command.Name, err)
	}
	defer log.Close()

	cmd := exec.Command(p.command.Path, p.command.Args...)
	cmd.Env = append(os.Environ(), p.command.Env...)
	cmd.Dir = p.command.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true,
		Pdeathsig:  p.command.ParentDeath,
		Credential: p.command.Credential,
	}
	if err := startOnLastingThread(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.command.Name, err)
	}
	run := &processRun{cmd: cmd, exited: make(chan struct{})}
	p.run = run
	go func() {
		run.err = cmd.Wait()
		close(run.exited)
	}()
	return nil
}

// WaitReady waits until the running program is ready.
func (p *Process) WaitReady(ctx context.Context) error {
	run := p.current()
	if run == nil {
		return fmt.Errorf("wait for %s: not started", p.command.Name)
	}
	if p.command.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.command.ReadyTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if last = p.command.Ready(ctx); last == nil {
			return nil
		}
		select {
		case <-run.exited:
			return fmt.Errorf("%s exited before it was ready (%v); the end of %s:\n%s",
				p.command.Name, run.err, p.command.LogFile, p.LogTail(30))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%w): %v; the end of %s:\n%s",
				p.command.Name, ctx.Err(), last, p.command.LogFile, p.LogTail(30))
		case <-tick.C:
		}
	}
}

// Stop ends the program in order: its stop signal, then SIGKILL to its group after the grace. Stopping what does not
// run is not an error.
func (p *Process) Stop() error {
	run := p.current()
	if run == nil || run.over() {
		return nil
	}
	_ = p.signalAll("resume", syscall.SIGCONT) // a paused program could not handle the next one
	if err := run.cmd.Process.Signal(p.command.StopSignal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.command.Name, err)
	}
	grace := time.NewTimer(p.command.StopGrace)
	defer grace.Stop()
	select {
	case <-run.exited:
		return nil
	case <-grace.C:
		return p.Kill()
	}
}

// Kill ends the program at once with SIGKILL, with every process below it, and waits until they are gone. Killing what
// does not run is not an error.
func (p *Process) Kill() error {
	run := p.current()
	if run == nil || run.over() {
		return nil
	}
	pid := run.cmd.Process.Pid
	// The children of PostgreSQL lead sessions of their own, so the group alone would miss them, and one that is in the
	// middle of a statement would finish it. Stopping the parent first means that it can start no further child.
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	below := descendants(pid)
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	for _, child := range below {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	<-run.exited
	deadline := time.NewTimer(5 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(below, alive) {
		select {
		case <-deadline.C:
			return fmt.Errorf("kill %s: processes %v outlive SIGKILL", p.command.Name, below)
		case <-tick.C:
		}
	}
	return nil
}

// Pause freezes the program and everything below it (SIGSTOP) until Resume: it keeps its connections and answers
// nothing, as a machine that hangs does.
func (p *Process) Pause() error { return p.signalAll("pause", syscall.SIGSTOP) }

// Resume lets a paused program go on.
func (p *Process) Resume() error { return p.signalAll("resume", syscall.SIGCONT) }

func (p *Process) signalAll(verb string, signal syscall.Signal) error {
	run := p.current()
	if run == nil || run.over() {
		return fmt.Errorf("%s %s: not running", verb, p.command.Name)
	}
	pid := run.cmd.Process.Pid
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("%s %s: %w", verb, p.command.Name, err)
	}
	for _, child := range descendants(pid) {
		_ = syscall.Kill(child, signal)
	}
	return nil
}

// Running reports whether the program was started and has not ended.
func (p *Process) Running() bool {
	run := p.current()
	return run != nil && !run.over()
}

// PID is the current or last process id; 0 before the first start.
func (p *Process) PID() int {
	if run := p.current(); run != nil {
		return run.cmd.Process.Pid
	}
	return 0
}

// Exited is closed when the current run ends. It is nil, and so blocks for ever, before the first start.
func (p *Process) Exited() <-chan struct{} {
	if run := p.current(); run != nil {
		return run.exited
	}
	return nil
}

// Wait waits until the current run ends and returns how it ended: nil for exit status 0.
func (p *Process) Wait(ctx context.Context) error {
	run := p.current()
	if run == nil {
		return fmt.Errorf("wait for %s: not started", p.command.Name)
	}
	select {
	case <-run.exited:
		return run.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", p.command.Name, ctx.Err())
	}
}

// LogTail returns the last lines of the log, or a sentence that says why there are none.
func (p *Process) LogTail(lines int) string {
	tail, err := tailOf(p.command.LogFile, lines)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return tail
}

func (p *Process) current() *processRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (r *processRun) over() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

// startOnLastingThread starts cmd from a thread that lives as long as this program. The kernel sends the parent-death
// signal when the *thread* that forked ends, and Go ends idle threads as it likes.
func startOnLastingThread(cmd *exec.Cmd) error {
	lastingThread.Do(func() {
		go func() {
			runtime.LockOSThread()
			for request := range startRequests {
				request.result <- request.cmd.Start()
			}
		}()
	})
	result := make(chan error, 1)
	startRequests <- startRequest{cmd: cmd, result: result}
	return <-result
}

type startRequest struct {
	cmd    *exec.Cmd
	result chan<- error
}

var (
	lastingThread sync.Once
	startRequests = make(chan startRequest)
)

// tick is the unit of processor times in /proc: USER_HZ, which is 100 on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// CPUTime is the processor time that the process and those below it have used, to 10 ms each; what those used that have ended
// counts once their parent has noticed. 0 when it is not running.
func (p *Process) CPUTime() time.Duration {
	pid := p.PID()
	if !p.Running() {
		return 0
	}
	ticks := 0
	for _, one := range append([]int{pid}, descendants(pid)...) {
		if fields := statFields(one); len(fields) > 14 {
			for _, field := range fields[11:15] { // utime, stime, cutime, cstime
				n, _ := strconv.Atoi(field)
				ticks += n
			}
		}
	}
	return time.Duration(ticks) * tick
}

// descendants lists the processes below pid, parents before children.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if fields := statFields(child); len(fields) > 1 {
			if parent, err := strconv.Atoi(fields[1]); err == nil {
				children[parent] = append(children[parent], child)
			}
		}
	}
	var found []int
	for frontier := []int{pid}; len(frontier) > 0; frontier = frontier[1:] {
		found = append(found, children[frontier[0]]...)
		frontier = append(frontier, children[frontier[0]]...)
	}
	return found
}

// alive reports whether pid still runs. A zombie does not: it only waits for its parent to notice.
func alive(pid int) bool {
	fields := statFields(pid)
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// statFields are the fields of /proc/<pid>/stat from the third on: state, parent, … It is nil once the process is gone.
func statFields(pid int) []string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// They follow the command name, which is in parentheses and may itself contain some.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return nil
	}
	return strings.Fields(string(stat[end+1:]))
}

// tailOf reads the last lines of a file, from at most its last 64 KiB.
func tailOf(path string, lines int) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	const window = 64 << 10
	if size, err := file.Seek(0, io.SeekEnd); err == nil && size > window {
		_, _ = file.Seek(-window, io.SeekEnd)
	} else {
		_, _ = file.Seek(0, io.SeekStart)
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return "", err
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n"), nil
}
