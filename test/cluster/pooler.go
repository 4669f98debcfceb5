package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpubank/gpubank/test/cluster/pgprograms"
)

// Pooler is a private PgBouncer in transaction mode before one PostgreSQL: a transaction may run in another session than the one
// before it, and with few sessions in turn for all clients, it usually does.
type Pooler struct {
	*Process
	// Port listens on 127.0.0.1; it stays the same over Stop, Kill and Start.
	Port int
	dir  string
}

// PoolerSessions is how many sessions of the server a user has in a database for all its clients.
const PoolerSessions = 2

// poolerConfiguration: a restarting server is asked again soon, where the default is 15 s. %[1]d is the port, %[2]s and %[3]s the
// server's host and port, %[4]s the folder.
const poolerConfiguration = `[databases]
* = host=%[2]s port=%[3]s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[1]d
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %[4]s/users
pool_mode = transaction
default_pool_size = %[5]d
server_round_robin = 1
server_login_retry = 1
max_client_conn = 200
`

// StartPooler starts a PgBouncer before the PostgreSQL that addresses lead to, for their users. It fails with
// pgprograms.ErrPoolerMissing where there is none.
func StartPooler(ctx context.Context, addresses ...string) (*Pooler, error) {
	program, err := pgprograms.EnsurePooler(ctx, func(line string) { fmt.Fprintln(os.Stderr, line) })
	if err != nil {
		return nil, err
	}
	credential, err := postgresCredential() // it refuses to run as root, too
	if err != nil {
		return nil, err
	}
	dir, _, err := postgresDir("", credential)
	if err != nil {
		return nil, err
	}
	p := &Pooler{dir: dir}
	if err := p.start(ctx, program, credential, addresses); err != nil {
		return nil, errors.Join(fmt.Errorf("start PgBouncer: %w", err), p.Close())
	}
	return p, nil
}

func (p *Pooler) start(ctx context.Context, program string, credential *syscall.Credential, addresses []string) error {
	var server *url.URL
	var users strings.Builder
	for _, address := range addresses {
		parsed, err := url.Parse(address)
		if err != nil {
			return errors.New("an address of PostgreSQL is no URL")
		}
		server = parsed
		password, _ := parsed.User.Password()
		fmt.Fprintf(&users, "%q %q\n", parsed.User.Username(), password)
	}
	if err := writeOwned(filepath.Join(p.dir, "users"), users.String(), credential); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		port, err := FreePort()
		if err != nil {
			return err
		}
		p.Port = port
		file := filepath.Join(p.dir, "pgbouncer.ini")
		configuration := fmt.Sprintf(poolerConfiguration, port, server.Hostname(), server.Port(), p.dir, PoolerSessions)
		if err := writeOwned(file, configuration, credential); err != nil {
			return err
		}
		p.Process = NewProcess(Command{
			Name: "pgbouncer", Path: program, Args: []string{file}, Dir: p.dir, LogFile: filepath.Join(p.dir, "pgbouncer.log"),
			Credential: credential, StopSignal: syscall.SIGINT,
			// It serves also while the server is away.
			Ready: func(ctx context.Context) error {
				var dialer net.Dialer
				connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
				if err != nil {
					return err
				}
				return connection.Close()
			},
		})
		if err = p.Process.Start(ctx); err == nil {
			return nil
		}
		if attempt == 5 || !strings.Contains(p.LogTail(30), "Address already in use") {
			return err
		}
	}
}

// Through is an address by way of the pooler.
func (p *Pooler) Through(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		panic("cluster: an address of PostgreSQL is no URL")
	}
	parsed.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port))
	return parsed.String()
}

// Close stops the pooler and removes its folder.
func (p *Pooler) Close() error {
	var err error
	if p.Process != nil {
		err = p.Kill()
	}
	return errors.Join(err, RemoveTempDir(p.dir))
}
