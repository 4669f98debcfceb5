package main

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpubank/gpubank/pkg/ledger"
)

// outcome is what the demo saw, to be compared with what must have come out.
type outcome struct {
	start, held, end amounts
	// gpuSeconds is what the pod held by its own start and finish; the rate is one credit each.
	gpuSeconds int64
	statement  ledger.Statement
}

// problems lists what does not add up; none if all does.
func (o outcome) problems() []string {
	const limit = 4 * 60 * ledger.Credit // 4 GPUs for at most 60 s
	price := ledger.Microcredits(o.gpuSeconds) * ledger.Credit
	lines := o.statement.Opening
	for _, line := range o.statement.Lines {
		lines += line.Amount
	}
	var problems []string
	for _, sum := range []struct {
		what      string
		got, want ledger.Microcredits
	}{
		{"what is set aside for the Job", o.held.reserved, limit},
		{"what is available beside it", o.held.available, o.start.balance - limit},
		{"the balance before anything ran", o.held.balance, o.start.balance},
		{"the charge for the time that was held", o.end.charged, price},
		{"the balance in the end", o.end.balance, o.start.balance - price},
		{"what is set aside in the end", o.end.reserved, 0},
		{"what is available in the end", o.end.available, o.end.balance},
		{"the statement's closing balance", o.statement.Closing, o.end.balance},
		{"the statement's opening balance and lines", lines, o.statement.Closing},
	} {
		if sum.got != sum.want {
			problems = append(problems, fmt.Sprintf("%s is %s, not %s", sum.what, credits(sum.got), credits(sum.want)))
		}
	}
	return problems
}

// heldTime is from the kubelet's admission of the pod to its last container's finish, as the pod's status says. It is
// worked out here again, apart from the code that charges by it.
func heldTime(pod *corev1.Pod) time.Duration {
	if pod.Status.StartTime == nil {
		return 0
	}
	finish := pod.Status.StartTime.Time
	for _, container := range pod.Status.ContainerStatuses {
		if container.State.Terminated != nil && container.State.Terminated.FinishedAt.After(finish) {
			finish = container.State.Terminated.FinishedAt.Time
		}
	}
	return finish.Sub(pod.Status.StartTime.Time)
}

func credits(amount ledger.Microcredits) string { return ledger.DisplayCredits(amount) }

// wrap breaks a sentence into lines of at most width bytes, at spaces.
func wrap(sentence string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(sentence) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
