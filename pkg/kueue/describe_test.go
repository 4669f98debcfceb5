package kueue

import (
	"fmt"
	"strings"
)

// describe puts a plan into words.
func describe(p plan) string {
	var steps []string
	for _, a := range p.before {
		steps = append(steps, string(a.state)+" first")
	}
	if p.pause != nil {
		steps = append(steps, fmt.Sprintf("pause from %d", p.pause.From))
	}
	if p.hold != nil {
		steps = append(steps, fmt.Sprintf("hold %d GPUs %d GPU-seconds %s from %d", p.hold.Hold.MaxGPUs, p.hold.Hold.GPUSeconds, p.hold.Hold.Class, p.hold.From))
	}
	for _, a := range p.after {
		steps = append(steps, string(a.state))
	}
	return strings.Join(steps, ", ")
}
