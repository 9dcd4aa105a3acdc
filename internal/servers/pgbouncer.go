//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const pgBouncerStartLimit = time.Minute

// PgBouncerConfig configures a private PgBouncer.
type PgBouncerConfig struct {
	// PoolSize is the number of server connections per database. Zero means
	// 20, PgBouncer's default.
	PoolSize int
	// Settings are further settings of the section [pgbouncer].
	Settings map[string]string
}

// PgBouncer is a private PgBouncer in transaction pooling mode. Its methods may
// be called from several goroutines.
type PgBouncer struct {
	instance   *instance
	config     PgBouncerConfig
	target     *pgx.ConnConfig
	credential *syscall.Credential
}

// StartPgBouncer starts a PgBouncer in front of the server at databaseURL, with
// its files below dir, and returns when it answers. It accepts everybody and
// logs in with the user and the password of databaseURL.
func StartPgBouncer(ctx context.Context, dir, databaseURL string, config PgBouncerConfig) (*PgBouncer, error) {
	target, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("parse the address of the database behind PgBouncer: %w", err)
	}
	i, err := openInstance(ctx, "pgbouncer", dir, 1, false)
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{instance: i, config: config, target: target}
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, removeData(i.dir), i.release())
	}
	return b, nil
}

func (b *PgBouncer) start(ctx context.Context) (err error) {
	if b.credential, err = serverUser(); err != nil {
		return err
	}
	if b.instance.data, err = placeData(ctx, b.instance.dir, b.credential); err != nil {
		return err
	}
	return b.instance.start(ctx, pgBouncerStartLimit, b.attempt)
}

// URL returns the address of the database through PgBouncer.
func (b *PgBouncer) URL() string { return b.instance.url }

// Close stops PgBouncer and deletes its files. Its log remains in dir.
func (b *PgBouncer) Close() error { return b.instance.close(context.Background()) }

func (b *PgBouncer) attempt(ctx context.Context) error {
	i := b.instance
	address := url.URL{
		Scheme: "postgres", User: url.User(b.target.User), Host: loopback(i.port(0)),
		Path: "/" + b.target.Database, RawQuery: "sslmode=disable",
	}
	i.setURL(address.String())
	path, err := Binary("pgbouncer")
	if err != nil {
		return err
	}
	file := filepath.Join(i.data, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(b.configuration()), 0o600); err != nil {
		return fmt.Errorf("configure PgBouncer: %w", err)
	}
	if err := chown(file, b.credential); err != nil {
		return err
	}
	if _, err := i.launch(ctx, processSpec{
		name: "pgbouncer", path: path, args: []string{file}, cwd: i.data, credential: b.credential,
		stopSignal: syscall.SIGTERM, killSignal: syscall.SIGKILL,
	}); err != nil {
		return err
	}
	return i.awaitReady(ctx, func(ctx context.Context) error {
		return PingPostgreSQL(ctx, i.url+"&default_query_exec_mode=simple_protocol")
	})
}

func (b *PgBouncer) configuration() string {
	size := b.config.PoolSize
	if size == 0 {
		size = 20
	}
	lines := []string{
		"[databases]",
		"* = " + b.connectionString(),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(b.instance.port(0)),
		"unix_socket_dir =", // none
		"auth_type = any",
		"pool_mode = transaction",
		"default_pool_size = " + strconv.Itoa(size),
		"max_client_conn = 500",
		// pgx may send it; it does not change what a transaction does.
		"ignore_startup_parameters = extra_float_digits",
	}
	for name, value := range b.config.Settings {
		lines = append(lines, name+" = "+value)
	}
	return strings.Join(lines, "\n") + "\n"
}

func (b *PgBouncer) connectionString() string {
	host := b.target.Host
	if host == "localhost" {
		host = "127.0.0.1" // PgBouncer resolves names asynchronously, and slowly.
	}
	parts := []string{"host=" + host, "port=" + strconv.Itoa(int(b.target.Port)), "user=" + quoted(b.target.User)}
	if b.target.Password != "" {
		parts = append(parts, "password="+quoted(b.target.Password))
	}
	return strings.Join(parts, " ")
}

// quoted writes a value as PgBouncer's connection strings want it.
func quoted(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }
