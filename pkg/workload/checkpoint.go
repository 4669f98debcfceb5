package workload

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// What a pod says of its checkpoints, as annotations. All but CheckpointedAtAnnotation are set once, usually by a Job's
// template. They are their author's words: see docs/designs/preemption.md for what a false one could gain.
const (
	// CheckpointedAtAnnotation is where a pod, or whoever runs it, writes when its last durable checkpoint was made, in RFC
	// 3339. Of pods that can be stopped for another, the one that loses least since then is; and a pod that is preempted is
	// given back the time since then, where its account's policy says so.
	CheckpointedAtAnnotation = "gpubank.io/checkpointed-at"
	// CheckpointURIAnnotation and CheckpointSHA256Annotation say where that checkpoint is, and what its content hashes to. Nobody here
	// reads it; people and operators do.
	CheckpointURIAnnotation    = "gpubank.io/checkpoint-uri"
	CheckpointSHA256Annotation = "gpubank.io/checkpoint-sha256"
	// CheckpointIntervalAnnotation is how often it saves its work, as a duration such as 10m or as whole seconds; "none" if
	// nothing survives before its end.
	CheckpointIntervalAnnotation = "gpubank.io/checkpoint-interval"
	// RestartSecondsAnnotation is how long a new attempt takes until it is useful again, in whole seconds.
	RestartSecondsAnnotation = "gpubank.io/restart-seconds"
)

// NoCheckpoints is CheckpointIntervalAnnotation's word for a workload that saves nothing.
const NoCheckpoints = "none"

// MaxRestart is the longest restart that a pod may claim.
const MaxRestart = 24 * time.Hour

// Checkpoints is what a pod says, where it makes sense. The zero value says nothing.
type Checkpoints struct {
	// At is when the last durable checkpoint was made, UTC; zero if none is reported. Whether it can be true depends on when the pod
	// started and what time it is: see LastAt.
	At time.Time
	// URI and SHA256 (64 lower-case hexadecimal digits) describe it; empty if unsaid.
	URI, SHA256 string
	// Interval is 1 s or more, or 0 if unsaid or None.
	Interval time.Duration
	// None: it says that it saves nothing.
	None bool
	// Restart is 0 to MaxRestart.
	Restart time.Duration
}

// CheckpointError is an annotation that cannot be used. It is the user's to correct, and counts as if it were not there.
type CheckpointError struct {
	Annotation string
	Message    string // what is wrong and what to set
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("the annotation %s is ignored: %s", e.Annotation, e.Message)
}

// ReadCheckpoints reads what a pod's annotations say, and what of it cannot be used.
func ReadCheckpoints(annotations map[string]string) (Checkpoints, []*CheckpointError) {
	var (
		c        Checkpoints
		problems []*CheckpointError
	)
	bad := func(annotation, message string, arguments ...any) {
		problems = append(problems, &CheckpointError{Annotation: annotation, Message: fmt.Sprintf(message, arguments...)})
	}
	said := func(annotation string) string { return strings.TrimSpace(annotations[annotation]) }

	if text := said(CheckpointedAtAnnotation); text != "" {
		if at, err := time.Parse(time.RFC3339, text); err != nil {
			bad(CheckpointedAtAnnotation, "%q is no time in RFC 3339, such as 2026-03-01T12:00:00Z", text)
		} else {
			c.At = at.UTC()
		}
	}
	if text := said(CheckpointURIAnnotation); text != "" {
		if parsed, err := url.Parse(text); err != nil || parsed.Scheme == "" {
			bad(CheckpointURIAnnotation, "%q is no URI with a scheme, such as s3://bucket/run/step-1000", text)
		} else {
			c.URI = text
		}
	}
	if text := said(CheckpointSHA256Annotation); text != "" {
		if !hexSHA256.MatchString(text) {
			bad(CheckpointSHA256Annotation, "%q is no SHA-256 in 64 lower-case hexadecimal digits", text)
		} else {
			c.SHA256 = text
		}
	}
	switch text := said(CheckpointIntervalAnnotation); text {
	case "":
	case NoCheckpoints:
		c.None = true
	default:
		if seconds, err := ParseMaxRuntime(text); err != nil {
			bad(CheckpointIntervalAnnotation, "%v, or %s", err, NoCheckpoints)
		} else {
			c.Interval = time.Duration(seconds) * time.Second
		}
	}
	if text := said(RestartSecondsAnnotation); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if most := int64(MaxRestart / time.Second); err != nil || seconds < 0 || seconds > most {
			bad(RestartSecondsAnnotation, "%q is not a whole number of seconds from 0 to %d", text, most)
		} else {
			c.Restart = time.Duration(seconds) * time.Second
		}
	}
	return c, problems
}

var hexSHA256 = regexp.MustCompile(`^[0-9a-f]{64}$`)

// LastAt returns the reported checkpoint of a pod that started at started (zero if it has not), or zero if it reports none or
// one that cannot be true: then err, a *CheckpointError, says why.
func (c Checkpoints) LastAt(started, now time.Time) (at time.Time, err error) {
	switch {
	case c.At.IsZero():
		return time.Time{}, nil
	case c.At.After(now):
		return time.Time{}, &CheckpointError{Annotation: CheckpointedAtAnnotation, Message: fmt.Sprintf(
			"%s lies in the future; write the time at which the checkpoint was complete", c.At.Format(time.RFC3339))}
	case started.IsZero():
		return time.Time{}, &CheckpointError{Annotation: CheckpointedAtAnnotation, Message: "the pod has not started, so it has no checkpoint of its own yet"}
	case c.At.Before(started):
		return time.Time{}, &CheckpointError{Annotation: CheckpointedAtAnnotation, Message: fmt.Sprintf(
			"%s lies before the pod's start at %s; it is another attempt's", c.At.Format(time.RFC3339), started.Format(time.RFC3339))}
	}
	return c.At, nil
}
