package doctest

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/internal/kafkatest"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/servers"
)

// tryLimit is for what newcomers are told to type, compiling included.
const tryLimit = 5 * time.Minute

// What the README and the pages of the brokers tell newcomers to type works as
// it is written. In a copy of this checkout "make services" finds the servers of
// this test, and "make services-down" has none to stop.
func TestWhatNewcomersType(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.URL(t)
	amqpURL, err := servers.AMQPURL()
	require.NoError(t, err)
	checkout := copyCheckout(t)
	environment := []string{"AMQP_URL=" + amqpURL, "KAFKA_BROKERS=" + strings.Join(kafkatest.Brokers(t), ",")}

	for _, try := range []struct {
		page, heading string
		worker        string // what is to be stopped with Ctrl-C
		see           []string
	}{
		{"README.md", "See it work", "", []string{"3 payments are booked, 3 times in all"}},
		{"docs/kafka.md", "Try it", "go run ./examples/kafka-worker\n", []string{"partitions assigned", "consumer stopped", "     250\n(1 row)"}},
		{"docs/rabbitmq.md", "Try it", "go run ./examples/rabbitmq-worker\n", []string{"consumer started", "consumer stopped", "     250\n(1 row)"}},
	} {
		t.Run(try.page, func(t *testing.T) { // one after the other: they share the copy
			start, rest := commands(t, try.page, try.heading)
			database := newDatabase(t, databaseURL)
			sh := shell{t: t, directory: checkout}
			sh.run(start, append(environment, "DATABASE_URL="+database)...).wait()
			if try.worker != "" {
				require.Equal(t, 1, strings.Count(rest, try.worker))
				ends := strings.TrimSuffix(try.worker, "\n") + " || true\n" // "go run" fails after Ctrl-C, whatever the program does
				rest = strings.Replace(rest, try.worker, ends, 1)
			}
			name := "ackafter-test-" + rand.Text()
			typed := sh.run(rest, "TOPIC="+name, "GROUP="+name, "QUEUE="+name, "SUBSCRIBER="+name, "HTTP_ADDR=127.0.0.1:0")
			if try.worker != "" {
				typed.interruptOnce(func() bool { return booked(t, database) })
			}
			output := typed.wait()
			for _, see := range try.see {
				require.Contains(t, output, see)
			}
		})
	}
}

// commands returns the first shell block below a heading: its first line, which
// has to start the servers, and the others.
func commands(t *testing.T, page, heading string) (start, rest string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)\n## " + heading + "\n.*?\n```sh\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, found, page)
	start, rest, _ = strings.Cut(string(found[1]), "\n")
	require.Equal(t, "make services", start)
	return start, rest
}

// copyCheckout returns a copy of the checkout as it is, without what it ignores.
func copyCheckout(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	sh := shell{t: t, directory: root}
	sh.run(`git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- --create | tar --extract --directory="$TO"`,
		"TO="+to).wait()
	return to
}

// newDatabase returns the address of an empty database.
func newDatabase(t *testing.T, databaseURL string) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	pool := pgtest.Pool(t, databaseURL)
	t.Cleanup(pool.Close)
	_, err := pool.Exec(t.Context(), "create database "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "drop database "+name+" with (force)")
		require.NoError(t, err)
	})
	u, err := url.Parse(databaseURL)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

// booked tells whether a payment has arrived.
func booked(t *testing.T, databaseURL string) (yes bool) {
	pool, err := pgxpool.New(t.Context(), databaseURL)
	require.NoError(t, err)
	defer pool.Close()
	err = pool.QueryRow(t.Context(), "select balance > 0 from accounts").Scan(&yes)
	return err == nil && yes
}

// shell runs commands in a directory, without the servers of this test.
type shell struct {
	t         *testing.T
	directory string
}

type typed struct {
	t      *testing.T
	cmd    *exec.Cmd
	output bytes.Buffer
	done   chan struct{}
}

func (s shell) run(commands string, environment ...string) *typed {
	s.t.Helper()
	c := &typed{t: s.t, cmd: exec.Command("bash", "-e", "-o", "pipefail", "-c", commands), done: make(chan struct{})}
	c.cmd.Dir = s.directory
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "DATABASE_URL" && name != "AMQP_URL" && name != "KAFKA_BROKERS" {
			c.cmd.Env = append(c.cmd.Env, v)
		}
	}
	c.cmd.Env = append(c.cmd.Env, environment...)
	c.cmd.Stdout, c.cmd.Stderr = &c.output, &c.output
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a terminal does
	require.NoError(s.t, c.cmd.Start())
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // ProcessState tells
	}()
	s.t.Cleanup(func() {
		c.signal(syscall.SIGKILL)
		<-c.done
	})
	return c
}

// interruptOnce presses Ctrl-C when something has happened.
func (c *typed) interruptOnce(happened func() bool) {
	c.t.Helper()
	for end := time.Now().Add(tryLimit); !happened(); {
		require.True(c.t, time.Now().Before(end), "it takes too long")
		select {
		case <-c.done:
			require.Fail(c.t, "it has ended too early", c.output.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	c.signal(syscall.SIGINT)
}

// wait returns the output of commands that have succeeded.
func (c *typed) wait() string {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(tryLimit):
		require.FailNow(c.t, "it takes too long")
	}
	require.Zero(c.t, c.cmd.ProcessState.ExitCode(), "%s", &c.output)
	return c.output.String()
}

func (c *typed) signal(s syscall.Signal) { _ = syscall.Kill(-c.cmd.Process.Pid, s) }
