package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/servers"
)

// The subscriber of a test that needs only one.
const subscriber = "e2e"

// world is a schema and a queue of one test's own. The schema has the table
// effects beside those of the library, without any constraint, so that an
// effect which comes twice shows.
type world struct {
	t           *testing.T
	databaseURL string
	db          *pgtest.DB // beside the connections of the workers
	q           *queue
	log         *logBuffer // of all workers
}

// newWorld makes a world on the shared servers. Without them the test fails;
// only -short skips it.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, pgtest.URL(t), amqpURL(t))
}

func newWorldOn(t *testing.T, databaseURL, amqpURL string) *world {
	t.Helper()
	w := &world{t: t, databaseURL: databaseURL, log: &logBuffer{}}
	w.db = pgtest.On(t, databaseURL)
	w.db.MustExec(t, `create table %s.effects (n bigint generated always as identity,
		subscriber text, message_id text, attempt int, key text)`)
	w.q = newQueue(t, amqpURL)
	t.Cleanup(func() { w.log.show(t) })
	return w
}

func amqpURL(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server; -short leaves those out")
	}
	url, err := servers.AMQPURL()
	require.NoError(t, err)
	return url
}

// parts is what a worker is made of; a test changes what matters to it.
type parts struct {
	consumer.Config[pgx.Tx]
	Rabbit      rabbitmq.Config
	Pool        func(*pgxpool.Config)
	DatabaseURL string
	InboxConfig inbox.Config
}

// parts returns a worker that records an effect for each message.
func (w *world) parts() parts {
	return parts{
		Config: consumer.Config[pgx.Tx]{
			Subscriber: subscriber,
			Handler:    w.effect(),
			Logger:     w.log.logger(),
			Retry:      consumer.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond},
			Probe:      consumer.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond},
		},
		Rabbit: rabbitmq.Config{
			URL: w.q.url, Queue: w.q.name, Logger: w.log.logger(),
			BackoffMin: 10 * time.Millisecond, BackoffMax: 500 * time.Millisecond,
		},
		DatabaseURL: w.databaseURL,
		InboxConfig: inbox.Config{Schema: w.db.Schema},
	}
}

// effect is a handler that does what the test looks for.
func (w *world) effect() consumer.HandlerFunc[pgx.Tx] { return w.effectOf(subscriber) }

func (w *world) effectOf(subscriber string) consumer.HandlerFunc[pgx.Tx] {
	sql := w.db.SQL(`insert into %s.effects (subscriber, message_id, attempt, key) values ($1, $2, $3, $4)`)
	return func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		_, err := tx.Exec(ctx, sql, subscriber, m.ID, m.Attempt, string(m.Key))
		return err
	}
}

// worker is a runner at work.
type worker struct {
	*consumer.Runner[pgx.Tx]
	t      *testing.T
	pool   *pgxpool.Pool
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
}

// start runs a worker until the end of the test.
func (w *world) start(p parts) *worker {
	w.t.Helper()
	k := w.build(p)
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	go func() {
		defer close(k.done)
		k.err = k.Run(ctx)
	}()
	w.t.Cleanup(k.end)
	return k
}

func (w *world) build(p parts) *worker {
	w.t.Helper()
	k := &worker{t: w.t, done: make(chan struct{})}
	cfg, err := pgxpool.ParseConfig(p.DatabaseURL)
	require.NoError(w.t, err)
	cfg.MaxConns = 9
	if p.Pool != nil {
		p.Pool(cfg)
	}
	k.pool, err = pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(k.pool.Close)
	if p.Source == nil {
		p.Source, err = rabbitmq.New(p.Rabbit)
		require.NoError(w.t, err)
	}
	p.Inbox, err = inbox.NewWithConfig(k.pool, p.InboxConfig)
	require.NoError(w.t, err)
	k.Runner, err = consumer.New(p.Config)
	require.NoError(w.t, err)
	return k
}

// wait returns what Run returns by itself.
func (k *worker) wait() error {
	k.t.Helper()
	select {
	case <-k.done:
		return k.err
	case <-time.After(limit):
		require.FailNow(k.t, "Run does not return")
		return nil
	}
}

// stop asks Run to return, and waits for it.
func (k *worker) stop() {
	k.t.Helper()
	k.cancel()
	require.NoError(k.t, k.wait())
}

// held returns how many messages are with the worker.
func (k *worker) held() (n int) {
	for _, s := range k.Health().Streams {
		n += s.Held
	}
	return n
}

// end is what is left to do for a test that has not stopped the worker.
func (k *worker) end() {
	k.cancel()
	_ = k.wait()
}

// eventually waits for a condition. It is asked in the test's own goroutine,
// unlike that of require.Eventually, so that it may fail the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for end := time.After(limit); !ok(); {
		select {
		case <-ticker.C:
		case <-end:
			require.FailNow(t, "never: "+what)
		}
	}
}

// await waits until c is closed or has something.
func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(limit):
		require.FailNow(t, "never: "+what)
	}
}

// hold keeps a handler until release is closed, or the test is over.
func (w *world) hold(release <-chan struct{}) {
	select {
	case <-release:
	case <-w.t.Context().Done():
	}
}

// requireSettled waits until each id has its row, and then requires its one
// effect.
func (w *world) requireSettled(ids ...string) {
	w.t.Helper()
	eventually(w.t, "every message settled", func() bool { return w.db.Processed(w.t) >= len(ids) })
	w.requireEffects(ids...)
}

// requireEffects requires exactly one effect, and one row, for each id.
func (w *world) requireEffects(ids ...string) {
	w.t.Helper()
	require.Equal(w.t, len(ids), w.db.Processed(w.t), "rows in processed_messages")
	want := make(map[string]int, len(ids))
	for _, id := range ids {
		want[id] = 1
	}
	rows, err := w.db.Query(context.Background(), w.db.SQL("select message_id, count(*)::int from %s.effects group by 1"))
	require.NoError(w.t, err)
	got := make(map[string]int, len(ids))
	var id string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		got[id] = n
		return nil
	})
	require.NoError(w.t, err)
	for id := range want {
		if got[id] != 1 {
			w.t.Errorf("message %q has %d effects, want 1", id, got[id])
		}
	}
	require.Len(w.t, got, len(want), "messages with effects")
}

// requireNoTrace requires that nothing was committed.
func (w *world) requireNoTrace() {
	w.t.Helper()
	require.Zero(w.t, w.db.Processed(w.t), "settling rows")
	require.Zero(w.t, w.effects(), "effects")
}

func (w *world) effects() int {
	w.t.Helper()
	return w.db.Int(w.t, "select count(*) from %s.effects")
}

// requireNoAttemptCounted requires that whatever went wrong was nobody's
// failure.
func (w *world) requireNoAttemptCounted() {
	w.t.Helper()
	require.Zero(w.t, w.log.count(lineFailed), "failed attempts in the log")
	require.Zero(w.t, w.db.Int(w.t, "select count(*) from %s.effects where attempt <> 1"), "effects of a second attempt")
}

// ids returns n ids.
func ids(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return all
}
