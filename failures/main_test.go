package failures_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/failures"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/testmain"
)

func TestMain(m *testing.M) {
	testmain.Need("DATABASE_URL")
	goleak.VerifyTestMain(m)
}

const (
	subscriber = "billing"
	forGood    = -1
)

// bench is one test's schema, with a worker's inbox and an operator's store on
// pools of their own.
type bench struct {
	*pgtest.DB
	*failures.Store
	inbox *inbox.Inbox
	seen  *tracer // what the store sends
	t     testing.TB
	ctx   context.Context
}

func newBench(t testing.TB, cfg failures.Config) *bench {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	db := pgtest.New(t)
	b := &bench{DB: db, seen: &tracer{}, t: t}
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	var err error
	b.inbox, err = inbox.NewWithConfig(b.pool(12, b.seen), inbox.Config{Schema: db.Schema})
	require.NoError(t, err)
	cfg.Schema = db.Schema
	b.Store, err = failures.New(b.pool(4, b.seen), cfg)
	require.NoError(t, err)
	return b
}

// pool is like the test's own, whose queries are seen by tr.
func (b *bench) pool(connections int32, tr *tracer) *pgxpool.Pool {
	b.t.Helper()
	cfg := b.Config().Copy()
	cfg.MaxConns, cfg.ConnConfig.Tracer = connections, tr
	return b.poolOf(cfg)
}

// tracer keeps the queries that a pool sends, and lets a test intervene.
type tracer struct {
	mu      sync.Mutex
	queries []pgx.TraceQueryStartData
	before  func(sql string)
}

func (tr *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.queries = append(tr.queries, data)
	if tr.before != nil {
		tr.before(data.SQL)
	}
	return ctx
}

func (tr *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func message(id string) *consumer.Message {
	return &consumer.Message{ID: id, Body: []byte("body of " + id), Attempt: 1}
}

func failure(id string, retryIn time.Duration) consumer.Failure {
	return consumer.Failure{Message: message(id), Reason: consumer.ReasonFailed, Error: "no", Attempts: 3, RetryIn: retryIn}
}

// setAside does what a worker does.
func (b *bench) setAside(subscriber string, fs ...consumer.Failure) {
	b.t.Helper()
	for _, f := range fs {
		v, err := b.inbox.SetAside(b.ctx, subscriber, f)
		require.NoError(b.t, err)
		require.Equal(b.t, consumer.SetAside, v)
	}
}

// work runs handler for what is due, and lets what fails be tried in an hour.
func (b *bench) work(subscriber string, handler func(m *consumer.Message) error) (*consumer.Failure, error) {
	return b.inbox.RetryDue(b.ctx, subscriber, func(_ context.Context, _ pgx.Tx, f consumer.Failure) error {
		return handler(f.Message)
	}, func(f *consumer.Failure, err error) consumer.Disposition {
		f.Error, f.Attempts, f.RetryIn = err.Error(), f.Attempts+1, time.Hour
		return consumer.Stored
	})
}

func (b *bench) requireDue(n int) {
	b.t.Helper()
	require.Equal(b.t, n, b.Int(b.t, "select count(*) from %s.failed_messages where next_attempt_at <= now()"))
}

// fill sets n messages aside for good, m000001 and so on, a second apart and
// each tenth at the time of the one before, by 20 subscribers and for two reasons.
func (b *bench) fill(n int) {
	b.t.Helper()
	b.MustExec(b.t, fmt.Sprintf(`insert into %%s.processed_messages (subscriber_id, message_id)
select 's' || i %% 20, 'm' || to_char(i, 'FM000000') from generate_series(1, %d) i`, n))
	b.MustExec(b.t, fmt.Sprintf(`insert into %%s.failed_messages (subscriber_id, message_id, reason, error, attempts, failed_at,
	last_failed_at, next_attempt_at, message_type, topic, body, header_keys, header_values, position)
select 's' || i %% 20, 'm' || to_char(i, 'FM000000'), case when i %% 7 = 0 then 'permanent' else 'failed' end, 'no ' || i, 3,
	now() - interval '1 second' * (200000 - i + case when i %% 10 = 0 then 1 else 0 end), now(), null,
	'paid', 'payments', convert_to(repeat('x', 200), 'UTF8'), '{}', '{}', ''
from generate_series(1, %d) i`, n))
	b.MustExec(b.t, "analyze %s.failed_messages")
}

func (b *bench) poolOf(cfg *pgxpool.Config) *pgxpool.Pool {
	b.t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(b.t, err)
	b.t.Cleanup(pool.Close)
	return pool
}
