package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/ledger"
	"github.com/gpubank/gpubank/pkg/ledger/postgres"
	"github.com/gpubank/gpubank/test/cluster"
	"github.com/gpubank/gpubank/test/local/examples"
)

// demo brings everything up, tells one team's story as it happens, checks the sums, and removes everything.
func demo(ctx context.Context, out io.Writer) (err error) {
	fmt.Fprintln(out, "gpubank: one team's credits on real parts. Only the GPUs and the containers are simulated.")
	fmt.Fprintln(out)
	s, err := startStack(ctx, "", out)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.Close())
		if err == nil {
			fmt.Fprintln(out, "\nEverything was stopped and removed. To look around yourself: make up")
		}
	}()
	client, err := newAPI(s.controlPlane.RESTConfig())
	if err != nil {
		return err
	}
	t := &story{api: client, stack: s, out: out}
	return t.tell(ctx)
}

// story is what happens, in order, with what was seen.
type story struct {
	api   *api
	stack *stack
	out   io.Writer

	began   time.Time
	moments []moment
	pod     *corev1.Pod // as it ended
}

// moment is a row of the story's table.
type moment struct {
	what string
	amounts
}

func (t *story) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{t.grant, t.submit, t.refuse, t.run, t.settle, t.statement} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return t.addsUp(ctx)
}

// say prints what happened, with the seconds since the story began.
func (t *story) say(format string, arguments ...any) {
	fmt.Fprintf(t.out, "%6.1f s  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, arguments...))
}

func (t *story) grant(ctx context.Context) error {
	t.began = time.Now()
	fmt.Fprintln(t.out, "\nThe story (seconds since its beginning; amounts as the API server shows them)")
	fmt.Fprintln(t.out)
	if err := t.api.create(ctx, examples.Team); err != nil {
		return err
	}
	if err := t.remember(ctx, "start", func(a amounts) bool { return a.available > 0 }); err != nil {
		return err
	}
	t.say("team-a is granted %s credits; 1 credit is 1 GPU for 1 second", credits(t.moments[0].balance))
	return nil
}

func (t *story) submit(ctx context.Context) error {
	// Until its namespace has a service account, a pod could not be made.
	if err := t.stack.controlPlane.WaitNamespace(ctx, namespace); err != nil {
		return err
	}
	started := time.Now()
	if err := t.api.create(ctx, examples.Train); err != nil {
		return err
	}
	answered := time.Since(started)
	if err := t.remember(ctx, "Job created: 4 GPUs, at most 60 s", func(a amounts) bool { return a.reserved > 0 }); err != nil {
		return err
	}
	t.say("Job train (4 GPUs, at most 60 s) is accepted within %d ms; %s credits are set aside", answered.Milliseconds(), credits(t.moments[1].reserved))
	return nil
}

func (t *story) refuse(ctx context.Context) error {
	err := t.api.create(ctx, examples.TooExpensive)
	if err == nil {
		return errors.New("a Job that costs more than the account has was accepted")
	}
	if !strings.Contains(err.Error(), "denied the request") {
		return fmt.Errorf("a Job that costs too much was not refused but failed: %w", err)
	}
	t.say("Job too-expensive (8 GPUs, at most 1 h) is refused:")
	_, reason, _ := strings.Cut(err.Error(), "denied the request: ")
	for _, line := range wrap(reason, 100) {
		fmt.Fprintln(t.out, "            "+line)
	}
	return nil
}

func (t *story) run(ctx context.Context) error {
	err := until(ctx, "the pod runs", func(ctx context.Context) (bool, error) {
		pod, err := t.api.pod(ctx)
		return pod != nil && pod.Status.Phase == corev1.PodRunning, err
	})
	if err != nil {
		return t.explain(ctx, err)
	}
	pod, err := t.api.pod(ctx)
	if err != nil {
		return err
	}
	t.say("its pod runs on %s, placed by %s after the ledger had committed the allocation", pod.Spec.NodeName, pod.Spec.SchedulerName)

	charged := ledger.Microcredits(0)
	return until(ctx, "the pod ends", func(ctx context.Context) (bool, error) {
		now, err := t.api.amounts(ctx)
		if err != nil {
			return false, err
		}
		if now.charged > charged {
			charged = now.charged
			t.say("metered by the node agent: %s charged so far, %s still set aside", credits(now.charged), credits(now.reserved))
		}
		pod, err := t.api.pod(ctx)
		if err != nil || pod == nil {
			return false, err
		}
		t.pod = pod
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, nil
	})
}

func (t *story) settle(ctx context.Context) error {
	held := heldTime(t.pod)
	t.say("the pod ended: it held 4 GPUs for %s", held)
	what := fmt.Sprintf("pod ended after %.0f s: charged, remainder given back", held.Seconds())
	if err := t.remember(ctx, what, func(a amounts) bool { return a.reserved == 0 && a.charged > 0 }); err != nil {
		return err
	}
	end := t.moments[2]
	t.say("settled: %s charged, %s given back", credits(end.charged), credits(t.moments[1].reserved-end.charged))

	fmt.Fprintf(t.out, "\n  %-56s %10s %10s %10s\n", "moment", "balance", "reserved", "available")
	for _, m := range t.moments {
		fmt.Fprintf(t.out, "  %-56s %10s %10s %10s\n", m.what, credits(m.balance), credits(m.reserved), credits(m.available))
	}
	return nil
}

// statement prints what the team's own command shows.
func (t *story) statement(ctx context.Context) error {
	file := t.stack.gpubank.DatabaseURLFile(cluster.ReaderRole)
	fmt.Fprint(t.out, "\n$ kubectl credit statement team-a\n\n")
	command := exec.CommandContext(ctx, filepath.Join(t.stack.gpubank.Bin, "kubectl-credit"), "statement", account, "--database-url-file="+file)
	command.Stdout, command.Stderr = t.out, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("kubectl credit statement: %w", err)
	}
	return nil
}

// addsUp compares what was seen with what the ledger holds and with the pod's own times.
func (t *story) addsUp(ctx context.Context) error {
	store, err := postgres.Open(ctx, t.stack.gpubank.DatabaseURL, postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	statement, err := store.Statement(ctx, account, t.began.Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil {
		return fmt.Errorf("read the statement: %w", err)
	}
	violations, err := store.Audit(ctx)
	if err != nil {
		return fmt.Errorf("audit the ledger: %w", err)
	}
	facts := outcome{start: t.moments[0].amounts, held: t.moments[1].amounts, end: t.moments[2].amounts,
		gpuSeconds: 4 * int64(heldTime(t.pod)/time.Second), statement: statement}
	problems := facts.problems()
	for _, violation := range violations {
		problems = append(problems, fmt.Sprintf("audit: %+v", violation))
	}
	if len(problems) > 0 {
		return fmt.Errorf("it does not add up:\n  %s", strings.Join(problems, "\n  "))
	}
	fmt.Fprintf(t.out, "\nIt adds up: %s − %s = %s, and 4 GPUs × %.0f s × 1 credit = %s. The ledger's audit of all ten invariants finds nothing.\n",
		credits(facts.start.balance), credits(facts.end.charged), credits(facts.end.balance), heldTime(t.pod).Seconds(), credits(facts.end.charged))
	return nil
}

// remember waits until the account's amounts are as they should become, and adds them to the table.
func (t *story) remember(ctx context.Context, what string, become func(amounts) bool) error {
	var seen amounts
	err := until(ctx, what, func(ctx context.Context) (bool, error) {
		var err error
		seen, err = t.api.amounts(ctx)
		return become(seen), err
	})
	if err != nil {
		return t.explain(ctx, err)
	}
	t.moments = append(t.moments, moment{what, seen})
	return nil
}

// explain adds to an error where to look: what the pod waits for, and the ends of the parts' logs.
func (t *story) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	var where strings.Builder
	if pod, podErr := t.api.pod(ctx); podErr == nil && pod != nil {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				fmt.Fprintf(&where, "\nthe pod waits: %s", condition.Message)
			}
		}
	}
	for _, process := range t.stack.gpubank.Processes() {
		fmt.Fprintf(&where, "\n--- the end of %s's log\n%s", process.Name(), process.LogTail(8))
	}
	return fmt.Errorf("%w%s", err, where.String())
}
