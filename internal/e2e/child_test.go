package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// childVariable makes a worker process of this test binary.
const childVariable = "ACKAFTER_E2E_CHILD"

// childSpec says what the worker process does. It prints a line when something
// happens, and reads commands, one a line:
//
//	begun ID      a handler has done its work and is about to return
//	acking ID     the message is committed, and about to be acknowledged
//	stopping      SIGTERM has arrived
//	aside ID      the message is committed as set aside, and about to be acknowledged
//	retried ID    the message from failed_messages is committed as processed
//	heap N        what the command heap asks for: live bytes
//
// The command release lets everything that is held go on.
type childSpec struct {
	DatabaseURL, Schema, AMQPURL, Queue string
	Name                                string // of its sessions, in pg_stat_activity
	Workers                             int
	HoldHandler, HoldAck                bool   // until release
	HoldAside, HoldRetried              bool   // likewise
	FailFirst                           bool   // every message, at its first attempt, which is the only one in place
	FailAlways                          bool   // every message, which is not tried later
	DeadQueue                           string // where what is set aside for good goes; empty for failed_messages
	Poison                              string // the id of a message whose handler ends the process
	CrashLimit                          int
	HoldID                              string // HoldHandler, for this message only
	MaxBatch                            int
	FailSuffix                          string // messages whose id ends so fail always
	// What to read of Kafka in the place of the queue; ids are bodies then.
	KafkaBrokers []string
	Group, Topic string
}

// The exit codes of the worker process.
const (
	exitFailed   = 1 // Run has returned an error
	exitLeaked   = 3 // a goroutine was left
	exitOrphaned = 4 // the test is gone
	exitPoisoned = 5 // a handler has ended the process
)

// childMain is main in the worker process.
func childMain() int {
	var spec childSpec
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	c := &childWorker{spec: spec, released: make(chan struct{})}
	go c.readCommands()
	if err := c.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/ackafter/ackafter/internal/e2e.(*childWorker).readCommands"),
		goleak.IgnoreTopFunction("os/signal.loop")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitLeaked
	}
	return 0
}

type childWorker struct {
	spec     childSpec
	released chan struct{}
	printing sync.Mutex
}

func (c *childWorker) print(format string, args ...any) {
	c.printing.Lock()
	defer c.printing.Unlock()
	fmt.Printf(format+"\n", args...)
}

func (c *childWorker) readCommands() {
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		switch commands.Text() {
		case "release":
			close(c.released)
		case "heap":
			c.print("heap %d", liveHeap())
		}
	}
	os.Exit(exitOrphaned)
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (c *childWorker) run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.print("stopping") })()
	database, err := pgxpool.ParseConfig(c.spec.DatabaseURL)
	if err != nil {
		return err
	}
	database.ConnConfig.RuntimeParams["application_name"] = c.spec.Name
	pool, err := pgxpool.NewWithConfig(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	in, err := inbox.NewWithConfig(pool, inbox.Config{Schema: c.spec.Schema})
	if err != nil {
		return err
	}
	source, id, err := c.source()
	if err != nil {
		return err
	}
	cfg := consumer.Config[pgx.Tx]{
		Subscriber: subscriber,
		Source:     source,
		MessageID:  id,
		CrashLimit: c.spec.CrashLimit,
		Inbox:      heldInbox{in, c},
		Handler:    consumer.HandlerFunc[pgx.Tx](c.handle),
		Workers:    c.spec.Workers,
		MaxBatch:   c.spec.MaxBatch,
		Logger:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if c.spec.FailFirst {
		cfg.Attempts, cfg.RetryLater, cfg.RetryPoll = 1, []time.Duration{0}, tick
	}
	if c.spec.FailAlways || c.spec.FailSuffix != "" {
		cfg.Attempts, cfg.RetryLater = 1, []time.Duration{}
	}
	if c.spec.DeadQueue != "" {
		if cfg.DeadLetter, err = rabbitmq.NewDeadLetter(rabbitmq.DeadLetterConfig{URL: c.spec.AMQPURL, RoutingKey: c.spec.DeadQueue}); err != nil {
			return err
		}
	}
	runner, err := consumer.New(cfg)
	if err != nil {
		return err
	}
	return runner.Run(ctx)
}

func (c *childWorker) source() (consumer.Source, consumer.IDFunc, error) {
	if c.spec.Topic != "" {
		source, err := kafka.New(kafka.Config{
			Brokers: c.spec.KafkaBrokers, Group: c.spec.Group, Topics: []string{c.spec.Topic},
			SessionTimeout: 6 * time.Second, CommitInterval: tick,
		})
		return source, func(m *consumer.Message) (string, error) { return string(m.Body), nil }, err
	}
	queue := rabbitmq.Queue(c.spec.AMQPURL, c.spec.Queue)
	if c.spec.HoldAck {
		return &ackHook{queue, c.holdAck}, nil, nil
	}
	return queue, nil, nil
}

func (c *childWorker) handle(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
	_, err := tx.Exec(ctx, "insert into "+c.spec.Schema+".effects (message_id, attempt) values ($1, $2)", m.ID, m.Attempt)
	if err != nil {
		return err
	}
	if m.ID == c.spec.Poison {
		os.Exit(exitPoisoned)
	}
	if c.spec.FailSuffix != "" && strings.HasSuffix(m.ID, c.spec.FailSuffix) {
		return errors.New("no")
	}
	if c.spec.FailAlways || c.spec.FailFirst && m.Attempt == 1 {
		return errors.New("no")
	}
	if c.spec.HoldHandler || c.spec.HoldID == m.ID {
		c.print("begun %s", m.ID)
		<-c.released
	}
	return nil
}

func (c *childWorker) holdAck(m *consumer.Message) {
	c.print("acking %s", m.ID)
	<-c.released
}

// heldInbox is an inbox that holds what it has committed.
type heldInbox struct {
	*inbox.Inbox
	c *childWorker
}

// SetAside implements consumer.FailureInbox.
func (h heldInbox) SetAside(ctx context.Context, subscriber string, f consumer.Failure) (consumer.Verdict, error) {
	v, err := h.Inbox.SetAside(ctx, subscriber, f)
	if h.c.spec.HoldAside && err == nil {
		h.c.print("aside %s", f.Message.ID)
		<-h.c.released
	}
	return v, err
}

// RetryDue implements consumer.FailureInbox.
func (h heldInbox) RetryDue(ctx context.Context, subscriber string, apply func(context.Context, pgx.Tx, consumer.Failure) error,
	failed func(*consumer.Failure, error) consumer.Disposition) (*consumer.Failure, error) {
	f, err := h.Inbox.RetryDue(ctx, subscriber, apply, failed)
	if h.c.spec.HoldRetried && err == nil && f != nil {
		h.c.print("retried %s", f.Message.ID)
		<-h.c.released
	}
	return f, err
}

// ackHook is a source that calls before in front of each acknowledgement.
type ackHook struct {
	*rabbitmq.Source
	before func(*consumer.Message)
}

// Run implements consumer.Source.
func (h *ackHook) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	return h.Source.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
		return serve(ctx, hookedStream{s, h.before})
	})
}

type hookedStream struct {
	consumer.Stream
	before func(*consumer.Message)
}

// Ack implements consumer.Stream.
func (s hookedStream) Ack(ctx context.Context, ms ...*consumer.Message) error {
	for _, m := range ms {
		s.before(m)
	}
	return s.Stream.Ack(ctx, ms...)
}

// child is a worker process, seen from the test.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  interface{ Write([]byte) (int, error) }
	lines  chan string
	exited chan struct{}
}

func (w *world) childName() string { return "child of " + w.db.Schema }

// startChild starts a worker process on the world's schema and queue. It is
// killed at the end of the test.
func (w *world) startChild(spec childSpec) *child {
	w.t.Helper()
	spec.DatabaseURL, spec.Schema = w.databaseURL, w.db.Schema
	spec.AMQPURL, spec.Queue, spec.Name = w.q.url, w.q.name, w.childName()
	text, err := json.Marshal(spec)
	require.NoError(w.t, err)
	program, err := os.Executable()
	require.NoError(w.t, err)
	c := &child{t: w.t, cmd: exec.Command(program), lines: make(chan string, 100), exited: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	c.cmd.Stderr = w.log
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(w.t, err)
	stdout, err := c.cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, c.cmd.Start())
	go func() {
		defer close(c.exited)
		for output := bufio.NewScanner(stdout); output.Scan(); {
			c.lines <- output.Text()
		}
		_ = c.cmd.Wait() // ProcessState tells
	}()
	w.t.Cleanup(c.kill)
	return c
}

// next returns the next line that the process prints.
func (c *child) next() string {
	c.t.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-c.exited:
		require.FailNow(c.t, "the worker process has ended", c.cmd.ProcessState.String())
	case <-time.After(limit):
		require.FailNow(c.t, "the worker process says nothing")
	}
	return ""
}

// expect requires the next lines, in any order.
func (c *child) expect(lines ...string) {
	c.t.Helper()
	got := make([]string, len(lines))
	for i := range lines {
		got[i] = c.next()
	}
	require.ElementsMatch(c.t, lines, got)
}

func (c *child) command(text string) {
	c.t.Helper()
	_, err := c.stdin.Write([]byte(text + "\n"))
	require.NoError(c.t, err)
}

// heap returns how many bytes are live in the process.
func (c *child) heap() (n int) {
	c.t.Helper()
	c.command("heap")
	line := c.next()
	_, err := fmt.Sscanf(strings.TrimSpace(line), "heap %d", &n)
	require.NoError(c.t, err, line)
	return n
}

// kill ends the process as a power cut would, and waits for it.
func (c *child) kill() {
	c.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		require.ErrorIs(c.t, err, os.ErrProcessDone)
	}
	<-c.exited
}

// terminate asks the process to stop.
func (c *child) terminate() {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(syscall.SIGTERM))
}

// exitCode waits for the end of the process.
func (c *child) exitCode() int {
	c.t.Helper()
	select {
	case <-c.exited:
	case <-time.After(limit):
		require.NoError(c.t, errors.New("the worker process does not end"))
	}
	return c.cmd.ProcessState.ExitCode()
}
