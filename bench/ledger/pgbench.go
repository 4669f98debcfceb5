package ledger

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const pgbenchDatabase = "pgbench"

// preparePgbench fills pgbench's tables.
func (b *bench) preparePgbench(ctx context.Context) error {
	if _, err := b.pg.CreateDatabase(ctx, pgbenchDatabase); err != nil {
		return err
	}
	_, err := b.pgbenchProgram(ctx, "", "--initialize", "--quiet", "--scale="+strconv.Itoa(b.Scale))
	return err
}

// pgbench runs its own transaction, and says how long each took.
func (b *bench) pgbench(ctx context.Context, clients int) (rates, error) {
	folder, err := os.MkdirTemp("", "pgbench")
	if err != nil {
		return rates{}, err
	}
	defer os.RemoveAll(folder)
	text, err := b.pgbenchProgram(ctx, folder, "--no-vacuum", "--log",
		"--client="+strconv.Itoa(clients), "--jobs=2", fmt.Sprintf("--time=%d", max(1, int(b.Time/time.Second))))
	if err != nil {
		return rates{}, err
	}
	found := regexp.MustCompile(`tps = ([0-9.]+) \(without`).FindSubmatch(text)
	if found == nil {
		return rates{}, fmt.Errorf("pgbench said no rate: %s", text)
	}
	measured := rates{}
	if measured.perSecond, err = strconv.ParseFloat(string(found[1]), 64); err != nil {
		return rates{}, fmt.Errorf("pgbench said a strange rate: %w", err)
	}
	measured.durations, err = readDurations(folder)
	return measured, err
}

func (b *bench) pgbenchProgram(ctx context.Context, folder string, args ...string) ([]byte, error) {
	config, err := pgx.ParseConfig(b.pg.URL(pgbenchDatabase))
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, filepath.Join(b.pg.Bin, "pgbench"), args...)
	command.Dir = folder
	// Not as arguments, which everybody on the machine can read.
	command.Env = append(os.Environ(), "PGHOST="+config.Host, fmt.Sprintf("PGPORT=%d", config.Port), "PGUSER="+config.User,
		"PGPASSWORD="+config.Password, "PGDATABASE="+config.Database)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("pgbench: %w\n%s", err, problems.Bytes())
	}
	return out.Bytes(), nil
}

// readDurations reads pgbench's logs: client, transaction, microseconds, and more.
func readDurations(folder string) (durations []time.Duration, err error) {
	logs, err := filepath.Glob(filepath.Join(folder, "pgbench_log.*"))
	if err != nil {
		return nil, err
	}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			if len(fields) < 3 {
				return nil, fmt.Errorf("pgbench logged %q", line)
			}
			microseconds, err := strconv.ParseInt(fields[2], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("pgbench logged %q: %w", line, err)
			}
			durations = append(durations, time.Duration(microseconds)*time.Microsecond)
		}
	}
	if len(durations) == 0 {
		return nil, fmt.Errorf("pgbench logged no transaction in %s", folder)
	}
	return durations, nil
}
