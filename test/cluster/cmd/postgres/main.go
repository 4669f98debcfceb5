// Command postgres makes sure that the programs of PostgreSQL and PgBouncer are there, and says where.
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
	// Without it only the tests of a pooler are left out.
	pooler, err := pgprograms.EnsurePooler(ctx, func(line string) { fmt.Println(line) })
	if err != nil {
		fmt.Println("PgBouncer:", err)
		return
	}
	fmt.Println("PgBouncer:", pooler)
}
