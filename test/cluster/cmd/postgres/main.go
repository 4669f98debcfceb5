// Command postgres makes sure that PostgreSQL's programs are there, and says where.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpubank/gpubank/test/cluster/pgprograms"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	folder, err := pgprograms.Ensure(ctx, func(line string) { fmt.Println(line) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("PostgreSQL:", folder)
}
