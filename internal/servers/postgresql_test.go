//go:build unix

package servers

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestPostgreSQLKeepsDataAndPort(t *testing.T) {
	needServers(t)
	t.Parallel()
	ctx := testContext(t)
	server := startPostgreSQL(ctx, t, t.TempDir(), PostgreSQLConfig{Settings: map[string]string{"work_mem": "7MB"}})
	url := server.URL()
	execute(ctx, t, url, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")
	if got := queryString(ctx, t, url, "SHOW work_mem"); got != "7MB" {
		t.Errorf("work_mem = %s, want the configured 7MB", got)
	}

	for _, end := range []struct {
		name string
		call func(context.Context) error
	}{{"Stop", server.Stop}, {"Kill", server.Kill}} {
		if err := end.call(ctx); err != nil {
			t.Fatalf("%s: %v", end.name, err)
		}
		if err := PingPostgreSQL(ctx, url); err == nil {
			t.Errorf("the server answers after %s", end.name)
		}
		if err := server.Start(ctx); err != nil {
			t.Fatalf("Start after %s: %v", end.name, err)
		}
		if server.URL() != url {
			t.Errorf("after %s the address is %s, want %s", end.name, server.URL(), url)
		}
		if got := queryString(ctx, t, url, "SELECT count(*)::text FROM kept"); got != "1" {
			t.Errorf("after %s there are %s rows, want 1", end.name, got)
		}
	}
}

func TestPostgreSQLUsesItsDataAgain(t *testing.T) {
	needServers(t)
	t.Parallel()
	ctx := testContext(t)
	dir := reachableDirectory(t)
	first := startPostgreSQL(ctx, t, dir, PostgreSQLConfig{})
	execute(ctx, t, first.URL(), "CREATE TABLE kept (n int)")
	if err := first.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := StartPostgreSQL(ctx, dir, PostgreSQLConfig{}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server in the directory of a living one: error %v, want one that says it is in use", err)
	}
	// A stale pid file with the number of a living process: this one.
	pidFile := filepath.Join(dir, dataName, "cluster", "postmaster.pid")
	writeFile(t, pidFile, strconv.Itoa(os.Getpid())+"\n")
	if err := first.Start(ctx); err != nil {
		t.Fatalf("Start with a stale pid file: %v", err)
	}
	execute(ctx, t, first.URL(), "SELECT n FROM kept")
}

func TestPostgreSQLReplacesHalfInitializedData(t *testing.T) {
	needServers(t)
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	as, err := serverUser()
	if err != nil {
		t.Fatal(err)
	}
	data, err := placeData(ctx, dir, as)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(data, "cluster", "base", "junk"), "")
	writeFile(t, filepath.Join(data, "cluster.new", "junk"), "")
	writeFile(t, filepath.Join(dir, recordFile), "{half")
	startPostgreSQL(ctx, t, dir, PostgreSQLConfig{})
}

func TestPostgreSQLEndsWithItsOwner(t *testing.T) {
	needServers(t)
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	owner, url := startHelper(ctx, t, dir)
	execute(ctx, t, url, "CREATE TABLE kept (n int)")
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // It reports the kill.

	gone := func() bool { return PingPostgreSQL(ctx, url) != nil }
	if !pollUntil(ctx, 30*time.Second, gone) {
		t.Error("the server outlives the process that started it")
	}
	server := startPostgreSQL(ctx, t, dir, PostgreSQLConfig{})
	if server.URL() != url {
		t.Errorf("the address is %s, want that before the crash, %s", server.URL(), url)
	}
	execute(ctx, t, server.URL(), "SELECT n FROM kept")
}

func TestPostgreSQLDetached(t *testing.T) {
	needServers(t)
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	owner, url := startHelper(ctx, t, dir, helperDetached+"=1")
	if err := owner.Wait(); err != nil {
		t.Fatalf("the helper: %v", err)
	}
	t.Cleanup(func() {
		if err := Remove(context.Background(), dir); err != nil {
			t.Errorf("Remove: %v", err)
		}
	})
	if got, err := Running(ctx, dir); err != nil || got != url {
		t.Errorf("Running = %q, %v, want %q", got, err, url)
	}
	execute(ctx, t, url, "SELECT 1")
	if err := Remove(ctx, dir); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	if err := PingPostgreSQL(ctx, url); err == nil {
		t.Error("the server answers after Remove")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory after Remove: %v, want that it is gone", err)
	}
}

func TestPostgreSQLReportsItsLog(t *testing.T) {
	needServers(t)
	t.Parallel()
	_, err := StartPostgreSQL(testContext(t), t.TempDir(), PostgreSQLConfig{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), `unrecognized configuration parameter "no_such_setting"`) {
		t.Errorf("error = %v, want what the log says", err)
	}
}

func startPostgreSQL(ctx context.Context, t *testing.T, dir string, config PostgreSQLConfig) *PostgreSQL {
	t.Helper()
	server, err := StartPostgreSQL(ctx, dir, config)
	if err != nil {
		t.Fatalf("StartPostgreSQL: %v", err)
	}
	closeAtEnd(t, server)
	return server
}

// startHelper runs the test binary as the owner of a server.
func startHelper(ctx context.Context, t *testing.T, dir string, env ...string) (*exec.Cmd, string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(append(os.Environ(), helperDirectory+"="+dir), env...)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the helper did not start a server: %v, %v", err, cmd.Wait())
	}
	return cmd, strings.TrimSpace(line)
}

// reachableDirectory returns a directory that every user can enter, which
// t.TempDir() is not.
func reachableDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "servers-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func execute(ctx context.Context, t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func queryString(ctx context.Context, t *testing.T, url, query string) string {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close(ctx)
	var value string
	if err := conn.QueryRow(ctx, query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
