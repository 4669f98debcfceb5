package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = "usage: gpubank-local demo | up | down"

// interruptedExit is the shell's convention for a program that SIGINT ended.
const interruptedExit = 130

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "\ninterrupted; nothing is left running")
		os.Exit(interruptedExit)
	default:
		fmt.Fprintln(os.Stderr, "\nerror:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) != 1 {
		return errors.New(usage)
	}
	switch arguments[0] {
	case "demo":
		return demo(ctx, os.Stdout)
	case "up":
		return up(ctx, os.Stdout)
	case "down":
		return down(ctx, os.Stdout)
	case supervise:
		return superviseUntilStopped(ctx)
	default:
		return errors.New(usage)
	}
}
