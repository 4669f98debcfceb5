package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpubank/gpubank/pkg/ledger/postgres"
)

const (
	// migrateRetryLeast is soon, since a restarting PostgreSQL takes a second or two; migrateRetryMost is a rate that one
	// which recovers does not notice.
	migrateRetryLeast = time.Second
	migrateRetryMost  = 15 * time.Second
)

// migrate brings the ledger's tables up to date with the role that owns them, and ends: `credit-controller migrate`. While the
// database is away it waits, since a container that ended instead would be started again with growing pauses.
func migrate(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("credit-controller migrate", flag.ExitOnError)
	urlFile := flags.String("database-url-file", "", "File with the PostgreSQL URL of the ledger for the role that owns its tables (a mounted Secret).")
	klog.InitFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *urlFile == "" {
		return fmt.Errorf("--database-url-file is missing: name the file that holds the ledger's PostgreSQL URL for the role that owns its tables")
	}
	said := ""
	for pause := migrateRetryLeast; ; pause = min(2*pause, migrateRetryMost) {
		done, err := migrateOnce(ctx, *urlFile)
		if err == nil {
			klog.InfoS("Ledger's tables are up to date", "before", done.From, "now", done.To)
			if advice := done.Advice(); advice != "" {
				klog.ErrorS(nil, "Roles of the ledger are missing, and this role may not create them: parts cannot use the ledger until an administrator has",
					"missing", done.MissingRoles, "run", advice)
			}
			return nil
		}
		if err.Error() != said {
			said = err.Error()
			klog.ErrorS(err, "Ledger's tables cannot be brought up to date; trying again until they are")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// migrateOnce reads the address each time: a wrong password may be corrected meanwhile.
func migrateOnce(ctx context.Context, urlFile string) (postgres.Migration, error) {
	url, err := postgres.ReadURL(urlFile)
	if err != nil {
		return postgres.Migration{}, err
	}
	return postgres.MigrateAndReport(ctx, url)
}
