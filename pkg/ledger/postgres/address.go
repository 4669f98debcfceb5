package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ReadURL reads a PostgreSQL URL from a file, such as a mounted Secret.
func ReadURL(path string) (string, error) {
	if path == "" {
		return "", errors.New("read the ledger's address: no file is named that holds its PostgreSQL URL")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the ledger's address: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// OpenFile is Open with the URL in a file. The file is read again for each new connection, so that a changed password, role or
// host needs no restart: connections that stand go on until they break or are an hour old.
func OpenFile(ctx context.Context, path string, opts Options) (*Store, error) {
	databaseURL, err := ReadURL(path)
	if err != nil {
		return nil, err
	}
	config, err := poolConfig(databaseURL, opts)
	if err != nil {
		return nil, fmt.Errorf("%w (read from %s)", err, path)
	}
	config.BeforeConnect = func(_ context.Context, connection *pgx.ConnConfig) error {
		databaseURL, err := ReadURL(path)
		if err != nil {
			return err
		}
		fresh, err := connectionConfig(databaseURL)
		if err != nil {
			return fmt.Errorf("%w (read from %s)", err, path)
		}
		*connection = *fresh.ConnConfig
		return nil
	}
	return open(ctx, config, opts)
}

// connectionConfig says how every connection is made.
func connectionConfig(databaseURL string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("open ledger: the database URL is not a valid PostgreSQL URL, e.g. postgres://user:password@host:5432/gpubank")
	}
	// Behind PgBouncer in transaction mode a prepared statement may be gone, or be another client's, at the next
	// transaction. This mode prepares nothing by itself: it sends text and parameters of known types together.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.ConnConfig.ConnectTimeout = connectTimeout
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "gpubank-ledger"
	}
	// Parsed by this driver whatever the server's defaults are; PgBouncer keeps both per client.
	config.ConnConfig.RuntimeParams["DateStyle"] = "ISO"
	config.ConnConfig.RuntimeParams["TimeZone"] = "UTC"
	return config, nil
}
