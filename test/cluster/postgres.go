package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gpubank/gpubank/test/cluster/pgprograms"
)

// PostgresOptions choose how the private PostgreSQL runs. The zero value is what tests want.
type PostgresOptions struct {
	// Dir keeps its data, socket and log; it must be empty or not exist. Empty: a temporary folder, removed by Close.
	Dir string
	// Settings are added to postgresql.conf, for example {"log_min_duration_statement": "100ms"}.
	Settings map[string]string
	// WithoutRoles leaves the parts' roles and logins out: URLAs is then of no use.
	WithoutRoles bool
	// Progress hears about an installation of the package. Nil: standard error.
	Progress func(line string)
}

// Postgres is a private PostgreSQL cluster: its own data, port of 127.0.0.1, socket and passwords. fsync stays on, so
// what it says is committed is.
type Postgres struct {
	*Process
	// Port listens on 127.0.0.1; Socket is the folder of its Unix socket. Both stay the same over Stop, Kill and Start.
	Port   int
	Socket string
	// Bin is the folder with the programs (pgbench and psql are there too).
	Bin string

	dir       string // what Close removes, if temporary
	temporary bool
	// owner is an unprivileged role that may create databases, as gpubank's migrations have in production; admin may do anything.
	ownerPassword, adminPassword string
	partPasswords                map[string]string // by group role
}

const (
	postgresOwner = "gpubank"
	postgresAdmin = "postgres"
)

// StartPostgres creates a private cluster and waits until it answers.
func StartPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	if options.Progress == nil {
		options.Progress = func(line string) { fmt.Fprintln(os.Stderr, line) }
	}
	bin, err := pgprograms.Ensure(ctx, options.Progress)
	if err != nil {
		return nil, err
	}
	credential, err := postgresCredential()
	if err != nil {
		return nil, err
	}
	dir, temporary, err := postgresDir(options.Dir, credential)
	if err != nil {
		return nil, err
	}
	pg := &Postgres{Bin: bin, Socket: dir, dir: dir, temporary: temporary, ownerPassword: rand.Text(), adminPassword: rand.Text()}
	if err := pg.create(ctx, options, credential); err != nil {
		return nil, errors.Join(err, pg.Close())
	}
	return pg, nil
}

// create runs initdb, then the server until it gets a port of its own, then makes the owner role.
func (pg *Postgres) create(ctx context.Context, options PostgresOptions, credential *syscall.Credential) error {
	data := filepath.Join(pg.dir, "data")
	passwordFile := filepath.Join(pg.dir, "admin-password")
	if err := writeOwned(passwordFile, pg.adminPassword, credential); err != nil {
		return fmt.Errorf("create a PostgreSQL cluster in %s: %w", pg.dir, err)
	}
	// --no-sync only skips flushing the files of initdb itself; the server runs with fsync on.
	initdb := exec.CommandContext(ctx, filepath.Join(pg.Bin, "initdb"), "--pgdata="+data, "--username="+postgresAdmin,
		"--pwfile="+passwordFile, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync")
	initdb.Dir = pg.dir
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true}
	if output, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("create a PostgreSQL cluster in %s: initdb: %w\n%s", pg.dir, err, output)
	}

	for attempt := 1; ; attempt++ {
		port, err := FreePort()
		if err != nil {
			return err
		}
		pg.Port = port
		if err := writeOwned(filepath.Join(data, "postgresql.auto.conf"), pg.configuration(options.Settings), credential); err != nil {
			return fmt.Errorf("configure PostgreSQL in %s: %w", data, err)
		}
		pg.Process = NewProcess(Command{
			Name: "postgres", Path: filepath.Join(pg.Bin, "postgres"), Args: []string{"-D", data},
			Dir: pg.dir, LogFile: filepath.Join(pg.dir, "postgres.log"), Credential: credential,
			// SIGQUIT is its immediate shutdown, which takes its children along; SIGINT the fast one, which rolls back
			// what is open and writes a checkpoint.
			ParentDeath: syscall.SIGQUIT, StopSignal: syscall.SIGINT, StopGrace: 30 * time.Second,
			Ready: func(ctx context.Context) error { return pg.exec(ctx, "SELECT 1") },
		})
		err = pg.Process.Start(ctx)
		if err == nil {
			break
		}
		if attempt == 5 || !strings.Contains(pg.LogTail(30), "Address already in use") {
			return err
		}
	}
	if err := pg.exec(ctx, fmt.Sprintf("CREATE ROLE %s LOGIN CREATEDB PASSWORD '%s'", postgresOwner, pg.ownerPassword)); err != nil {
		return err
	}
	if options.WithoutRoles {
		return nil
	}
	return pg.createLogins(ctx)
}

func (pg *Postgres) configuration(extra map[string]string) string {
	settings := map[string]string{
		"listen_addresses":        "'127.0.0.1'",
		"port":                    strconv.Itoa(pg.Port),
		"unix_socket_directories": quoteSetting(pg.Socket),
		"max_connections":         "200",
		"shared_buffers":          "'128MB'",
		"fsync":                   "on",
		"log_line_prefix":         "'%m [%p] %d '",
		"timezone":                "'UTC'",
	}
	for name, value := range extra {
		settings[name] = quoteSetting(value)
	}
	lines := make([]string, 0, len(settings))
	for name, value := range settings {
		lines = append(lines, name+" = "+value+"\n")
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}

func quoteSetting(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }

// Close stops the server and removes its folder if it was a temporary one.
func (pg *Postgres) Close() error {
	var err error
	if pg.Process != nil {
		err = pg.Stop()
	}
	if pg.temporary {
		err = errors.Join(err, RemoveTempDir(pg.dir))
	}
	return err
}

// URL is the address of a database for the unprivileged role that owns it.
func (pg *Postgres) URL(database string) string {
	return pg.url(postgresOwner, pg.ownerPassword, database)
}

// AdminURL is the address of a database for the superuser.
func (pg *Postgres) AdminURL(database string) string {
	return pg.url(postgresAdmin, pg.adminPassword, database)
}

func (pg *Postgres) url(role, password, database string) string {
	address := url.URL{Scheme: "postgres", User: url.UserPassword(role, password),
		Host: "127.0.0.1:" + strconv.Itoa(pg.Port), Path: "/" + database, RawQuery: "sslmode=disable"}
	return address.String()
}

// WriteURLFile writes an address into a file that only this user can read, as a mounted Secret would be. Renamed into place, so
// that a program reads one address or the other.
func WriteURLFile(path, address string) error {
	temporary := path + ".new"
	err := os.WriteFile(temporary, []byte(address+"\n"), 0o600)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("write the address of a database: %w", err)
	}
	return nil
}

// CreateDatabase makes an empty database, owned by the unprivileged role, and returns its URL.
func (pg *Postgres) CreateDatabase(ctx context.Context, name string) (string, error) {
	statement := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize() + " OWNER " + postgresOwner
	if err := pg.exec(ctx, statement); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return pg.URL(name), nil
}

// EnsureDatabase is CreateDatabase, unless there is one already.
func (pg *Postgres) EnsureDatabase(ctx context.Context, name string) (string, error) {
	address, err := pg.CreateDatabase(ctx, name)
	const duplicateDatabase = "42P04"
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok && failure.Code == duplicateDatabase {
		return pg.URL(name), nil
	}
	return address, err
}

// Version is the server's, such as "15.18 (Debian 15.18-0+deb12u1)".
func (pg *Postgres) Version(ctx context.Context) (version string, err error) {
	connection, err := pgx.Connect(ctx, pg.AdminURL(postgresAdmin))
	if err != nil {
		return "", fmt.Errorf("ask PostgreSQL for its version: %w", err)
	}
	defer connection.Close(ctx)
	err = connection.QueryRow(ctx, "SHOW server_version").Scan(&version)
	return version, err
}

// Analyze gathers the statistics of a table that was just filled.
func (pg *Postgres) Analyze(ctx context.Context, url, table string) error {
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("gather statistics: %w", err)
	}
	defer connection.Close(ctx)
	_, err = connection.Exec(ctx, "ANALYZE "+pgx.Identifier{table}.Sanitize())
	return err
}

// DropDatabase removes a database, ending whoever is connected to it.
func (pg *Postgres) DropDatabase(ctx context.Context, name string) error {
	if err := pg.exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

func (pg *Postgres) exec(ctx context.Context, statement string) error {
	connection, err := pgx.Connect(ctx, pg.AdminURL("postgres"))
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	_, err = connection.Exec(ctx, statement)
	return err
}

// postgresCredential is whom the server runs as: nil for the current user, or, since it refuses to run as root, the
// system's postgres user, else nobody.
func postgresCredential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody; run this as another user")
}

// longestSocketFolder leaves room for "/.s.PGSQL.31999" in the 107 bytes of a Unix socket's address.
const longestSocketFolder = 107 - len("/.s.PGSQL.31999")

// postgresDir makes the cluster's folder and gives it to whom the server runs as. A wanted folder that this user cannot
// reach (below a private home, when root runs the tests) or whose path is too long for a socket is replaced by a
// temporary one.
func postgresDir(wanted string, credential *syscall.Credential) (dir string, temporary bool, err error) {
	if wanted != "" {
		if wanted, err = filepath.Abs(wanted); err != nil {
			return "", false, fmt.Errorf("make the folder for PostgreSQL: %w", err)
		}
		if err := os.MkdirAll(wanted, 0o755); err != nil {
			return "", false, fmt.Errorf("make the folder for PostgreSQL: %w", err)
		}
	}
	if wanted == "" || len(wanted) > longestSocketFolder || (credential != nil && !reachableByOthers(wanted)) {
		if wanted, err = TempDir(); err != nil {
			return "", false, fmt.Errorf("make the folder for PostgreSQL: %w", err)
		}
		temporary = true
	}
	if err := os.Chmod(wanted, 0o700); err != nil {
		return "", temporary, fmt.Errorf("make the folder for PostgreSQL: %w", err)
	}
	if credential != nil {
		if err := os.Chown(wanted, int(credential.Uid), int(credential.Gid)); err != nil {
			return "", temporary, fmt.Errorf("give %s to PostgreSQL's user: %w", wanted, err)
		}
	}
	return wanted, temporary, nil
}

// reachableByOthers reports whether every folder above path lets any user pass.
func reachableByOthers(path string) bool {
	for parent := filepath.Dir(path); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if parent == filepath.Dir(parent) {
			return true
		}
	}
}

// writeOwned writes a file that only the server's user can read.
func writeOwned(path, content string, credential *syscall.Credential) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return err
	}
	if credential == nil {
		return nil
	}
	return os.Chown(path, int(credential.Uid), int(credential.Gid))
}
