//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const postgreSQLStartLimit = time.Minute

// PostgreSQLConfig configures a private PostgreSQL server. The zero value is
// good for tests.
type PostgreSQLConfig struct {
	// Settings are server settings, such as "idle_session_timeout": "5s".
	// They override the defaults of this package.
	Settings map[string]string
	// Detached lets the server outlive this process.
	Detached bool
}

// PostgreSQL is a private PostgreSQL server. Its methods may be called from
// several goroutines.
type PostgreSQL struct {
	instance   *instance
	config     PostgreSQLConfig
	credential *syscall.Credential
}

// StartPostgreSQL starts a server with its data below dir, and returns when it
// answers. When it finds data of an earlier server there, it uses them.
func StartPostgreSQL(ctx context.Context, dir string, config PostgreSQLConfig) (*PostgreSQL, error) {
	i, err := openInstance(ctx, "postgresql", dir, 1, config.Detached)
	if err != nil {
		return nil, err
	}
	p := &PostgreSQL{instance: i, config: config}
	fresh, err := p.prepare(ctx)
	if err == nil {
		err = p.Start(ctx)
	}
	if err != nil && fresh {
		err = errors.Join(err, removeData(i.dir))
	}
	if err != nil {
		return nil, errors.Join(err, i.release())
	}
	return p, nil
}

// prepare makes the data ready, and reports whether they are new.
func (p *PostgreSQL) prepare(ctx context.Context) (fresh bool, err error) {
	if p.credential, err = serverUser(); err != nil {
		return false, err
	}
	if p.instance.data, err = placeData(ctx, p.instance.dir, p.credential); err != nil {
		return false, err
	}
	return p.initialize(ctx)
}

// URL returns the address of the server's postgres database. It stays the same
// over Stop, Kill and Start.
func (p *PostgreSQL) URL() string { return p.instance.url }

// Start starts the server again after Stop or Kill, and returns when it
// answers.
func (p *PostgreSQL) Start(ctx context.Context) error {
	return p.instance.start(ctx, postgreSQLStartLimit, p.attempt)
}

// Stop shuts the server down in an orderly way: it ends the sessions and
// writes a checkpoint. The data remain.
func (p *PostgreSQL) Stop(ctx context.Context) error { return p.instance.stop(ctx, false) }

// Kill crashes the server: it recovers from its write-ahead log at the next
// Start. No process of it is left when Kill returns.
func (p *PostgreSQL) Kill(ctx context.Context) error { return p.instance.stop(ctx, true) }

// Close stops the server and deletes its data. Its log remains in dir.
func (p *PostgreSQL) Close() error { return p.instance.close(context.Background()) }

func (p *PostgreSQL) attempt(ctx context.Context) error {
	i := p.instance
	i.setURL("postgres://postgres@" + loopback(i.port(0)) + "/postgres?sslmode=disable")
	path, err := Binary("postgres")
	if err != nil {
		return err
	}
	if err := p.endLeftover(ctx); err != nil {
		return err
	}
	if _, err := i.launch(ctx, processSpec{
		name: "postgresql", path: path, args: p.arguments(), env: environment("LC_ALL", "C"),
		cwd: i.data, credential: p.credential,
		stopSignal: syscall.SIGINT, // PostgreSQL's fast shutdown
		// Not SIGKILL: the postmaster could not end its children any more.
		// SIGQUIT, the immediate shutdown, skips the checkpoint just as well.
		killSignal: syscall.SIGQUIT,
	}); err != nil {
		return err
	}
	return i.awaitReady(ctx, func(ctx context.Context) error { return PingPostgreSQL(ctx, i.url) })
}

func (p *PostgreSQL) arguments() []string {
	settings := map[string]string{
		"listen_addresses": "127.0.0.1",
		"port":             strconv.Itoa(p.instance.port(0)),
		// None: the path of the directory may be too long for a socket.
		"unix_socket_directories": "",
		"max_connections":         "200",
		"shared_buffers":          "64MB",
		"logging_collector":       "off",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		// On, as in production: a benchmark without them measures nothing.
		"fsync":              "on",
		"synchronous_commit": "on",
	}
	maps.Copy(settings, p.config.Settings)
	args := []string{"-D", p.cluster()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

func (p *PostgreSQL) cluster() string { return filepath.Join(p.instance.data, "cluster") }

// command prepares a short-lived program of PostgreSQL.
func (p *PostgreSQL) command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = p.instance.data
	cmd.Env = childEnvironment(environment("LC_ALL", "C"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: p.credential}
	return cmd
}

// PingPostgreSQL reports an error unless the server at url, or the PgBouncer in
// front of it, accepts a login.
func PingPostgreSQL(ctx context.Context, url string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if err := conn.Ping(ctx); err != nil {
		return fmt.Errorf("ask PostgreSQL: %w", err)
	}
	return nil
}
