package inbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/testmain"
)

func TestMain(m *testing.M) {
	testmain.Need("DATABASE_URL")
	goleak.VerifyTestMain(m)
}

const subscriber = "billing"

var errHandler = errors.New("the handler says no")

// bench is one test's schema, with a table of effects: one row per run of a
// handler that was committed.
type bench struct {
	*pgtest.DB
	*inbox.Inbox
	t   *testing.T
	ctx context.Context
}

func newBench(t *testing.T, cfg inbox.Config) *bench {
	t.Helper()
	t.Parallel()
	return benchOn(t, pgtest.New(t), cfg)
}

func benchOn(t *testing.T, db *pgtest.DB, cfg inbox.Config) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	db.MustExec(t, "create table %s.effects (id text not null)")
	cfg.Schema = db.Schema
	in, err := inbox.NewWithConfig(db.Pool, cfg)
	require.NoError(t, err)
	return &bench{DB: db, Inbox: in, t: t, ctx: ctx}
}

func message(id, body string) *consumer.Message {
	m := &consumer.Message{ID: id, Body: []byte(body), Attempt: 1}
	if body != "" {
		m.Hash = []byte((body + "················")[:16])
	}
	return m
}

type apply = func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error

// record is a handler that has an effect for each message.
func (b *bench) record(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error {
	for _, m := range fresh {
		if _, err := tx.Exec(ctx, b.SQL("insert into %s.effects values ($1)"), m.ID); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) process(f apply, ms ...*consumer.Message) ([]consumer.Verdict, error) {
	return b.Process(b.ctx, subscriber, ms, f)
}

func (b *bench) requireEffects(n int) {
	b.t.Helper()
	require.Equal(b.t, n, b.Int(b.t, "select count(*) from %s.effects"), "effects")
	require.Equal(b.t, n, b.Processed(b.t), "rows in processed_messages")
}

// requireIdle checks that every connection went back to the pool as it came.
func (b *bench) requireIdle() {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.Pool.Stat().AcquiredConns() == 0 },
		5*time.Second, time.Millisecond, "connections that were not given back") // pgxpool closes them in the background
	for _, c := range b.Pool.AcquireAllIdle(b.ctx) {
		require.EqualValues(b.t, 'I', c.Conn().PgConn().TxStatus(), "an open transaction in the pool")
		c.Release()
	}
}

func verdicts(vs ...consumer.Verdict) []consumer.Verdict { return vs }
