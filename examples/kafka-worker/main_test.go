package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/internal/kafkatest"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/testmain"
)

const limit = 30 * time.Second

// beWorker makes a worker of this test binary.
const beWorker = "ACKAFTER_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(beWorker) != "" {
		main()
		os.Exit(0)
	}
	testmain.Need("DATABASE_URL", "KAFKA_BROKERS")
	os.Exit(m.Run())
}

// worker is a process, and what it has logged once it has ended.
type worker struct {
	cmd  *exec.Cmd
	logs bytes.Buffer
}

func start(t *testing.T, env ...string) *worker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	w := &worker{cmd: exec.CommandContext(ctx, os.Args[0])}
	w.cmd.Env = append(append(os.Environ(), beWorker+"=1"), env...)
	w.cmd.Stdout, w.cmd.Stderr = &w.logs, &w.logs
	require.NoError(t, w.cmd.Start())
	return w
}

func (w *worker) exitCode() int {
	_ = w.cmd.Wait()
	return w.cmd.ProcessState.ExitCode()
}

func TestWorker(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.MustExec(t, `create table %s.accounts (id text primary key, balance bigint not null)`)
	db.MustExec(t, `insert into %s.accounts values ('alice', 0), ('bob', 0)`)
	topic, address := kafkatest.New(t, kafkatest.Brokers(t), 1), freeAddress(t)
	toAlice := testPayment("1", `{"account": "alice", "cents": 250}`)
	topic.Write(0, 0, toAlice, toAlice, testPayment("2", `{"account": "bob", "cents": 1}`))

	w := start(t, "DATABASE_URL="+withSearchPath(t, pgtest.URL(t), db.Schema), "KAFKA_BROKERS="+strings.Join(topic.Brokers, ","),
		"TOPIC="+topic.Name, "GROUP="+topic.Group, "HTTP_ADDR="+address,
		"WORKERS=1") // so that bob's payment comes last
	require.Eventually(t, func() bool {
		status, body := get(address)
		return status == http.StatusOK && bytes.Contains(body, []byte(`"state":"running"`)) &&
			bytes.Contains(body, []byte(`"name":"`+topic.Name+`/0"`)) && bytes.Contains(body, []byte(`"topic":"`+topic.Name+`"`))
	}, limit, 20*time.Millisecond, "it must become healthy")
	require.Eventually(t, func() bool {
		return db.Int(t, `select balance from %s.accounts where id = 'bob'`) > 0
	}, limit, 20*time.Millisecond, "it must book the payments")
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGTERM))

	require.Equal(t, 0, w.exitCode(), w.logs.String())
	require.Equal(t, 250, db.Int(t, `select balance from %s.accounts where id = 'alice'`), "delivered twice, booked once")
	require.Contains(t, w.logs.String(), `"msg":"consumer stopped"`)
	require.EqualValues(t, 3, topic.Committed(0), "messages that the worker did not settle")
}

func TestWorkerIsUnhealthyWithoutItsBroker(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	w := start(t, "DATABASE_URL="+pgtest.URL(t), "KAFKA_BROKERS=127.0.0.1:1", "HTTP_ADDR="+address)
	require.Eventually(t, func() bool {
		status, body := get(address)
		return status == http.StatusServiceUnavailable && bytes.Contains(body, []byte("connection refused"))
	}, limit, 20*time.Millisecond)
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, w.exitCode(), w.logs.String())
}

func TestWorkerSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := start(t, "DATABASE_URL="+pgtest.URL(t), "KAFKA_BROKERS=", "HTTP_ADDR="+freeAddress(t))
	require.Equal(t, 1, w.exitCode())
	require.Contains(t, w.logs.String(), "Config.Brokers[0]")
}

func testPayment(id, body string) kafkago.Message {
	return kafkago.Message{Value: []byte(body), Headers: []kafkago.Header{{Key: "message-id", Value: []byte(id)}}}
}

// withSearchPath lets the worker's SQL find its table in the test's schema.
func withSearchPath(t *testing.T, databaseURL, schema string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	require.NoError(t, err)
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func get(address string) (status int, body []byte) {
	r, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return 0, nil
	}
	defer r.Body.Close()
	body, _ = io.ReadAll(r.Body)
	return r.StatusCode, body
}
