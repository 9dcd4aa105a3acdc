package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
)

// Everything goes wrong at once, under batches of every size: handlers fail in all
// their ways, connections are ended by the server, streams are lost, and messages
// come twice. In the end each message has taken effect once, and those of a key
// in their order. ACKAFTER_SEED repeats a run.
func TestBatchesUnderFire(t *testing.T) {
	for _, c := range []struct {
		name              string
		maxBatch, workers int
		runners           int
		batchHandler      bool
	}{
		{name: "one by one", maxBatch: 1, workers: 4, runners: 2},
		{name: "batches", maxBatch: 32, workers: 4, runners: 2},
		{name: "one worker", maxBatch: 100, workers: 1, runners: 3},
		{name: "BatchHandler", maxBatch: 32, workers: 4, runners: 2, batchHandler: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := rand.Uint64()
			if s := os.Getenv("ACKAFTER_SEED"); s != "" {
				seed, _ = strconv.ParseUint(s, 10, 64)
			}
			t.Log("ACKAFTER_SEED =", seed)
			f := &fire{runnerBench: newRunnerBench(t), random: rand.New(rand.NewPCG(seed, 0))}
			f.setUp(c.maxBatch, c.workers, c.runners, c.batchHandler)
			f.burn(c.runners)
			f.requireRight()
		})
	}
}

const (
	fireKeys = 12
	fireEach = 150 // messages of a key, and as many without one
)

// fire is a bench on which nothing goes right.
type fire struct {
	*runnerBench
	random *rand.Rand // of the test's own goroutine
	sent   []*consumer.Message
}

func (f *fire) setUp(maxBatch, workers, streams int, batchHandler bool) {
	f.broker = memory.NewWithConfig(memory.Config{Streams: streams})
	f.MustExec(f.t, "create table %s.ordered (n bigserial, key text not null, i int not null)")
	f.cfg.Source = f.broker
	f.cfg.MaxBatch, f.cfg.Workers, f.cfg.Buffer = maxBatch, workers, 256
	f.cfg.Attempts = 1000 // in place, which keeps the order of a key
	f.cfg.CrashLimit = 1000
	f.cfg.HandlerTimeout = 2 * time.Second
	f.cfg.Probe = consumer.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}
	f.cfg.Handler = consumer.HandlerFunc[pgx.Tx](f.apply)
	if batchHandler {
		f.cfg.Handler, f.cfg.Batch = nil, consumer.BatchHandlerFunc[pgx.Tx](f.applyAll)
	}
	for i := range fireEach {
		for k := range fireKeys {
			f.sent = append(f.sent, &consumer.Message{ID: fmt.Sprintf("k%d-%d", k, i), Key: fmt.Appendf(nil, "k%d", k), Body: fmt.Append(nil, i)})
		}
		f.sent = append(f.sent, &consumer.Message{ID: fmt.Sprint("free-", i), Body: fmt.Append(nil, i)})
	}
}

var errFire = errors.New("now and then")

func (f *fire) applyAll(ctx context.Context, tx pgx.Tx, ms []*consumer.Message) error {
	for _, m := range ms {
		if err := f.apply(ctx, tx, m); err != nil && rand.N(2) == 0 {
			return consumer.Blame(m, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// apply has its effect, in one of two ways, and fails in one of many.
func (f *fire) apply(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
	insert := f.SQL("insert into %s.ordered (key, i) values ($1, $2)")
	send := func(sql string, args ...any) error { return inbox.Queue(tx, sql, args...) }
	if rand.N(2) == 0 {
		send = func(sql string, args ...any) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		}
	}
	if err := send(insert, string(m.Key), string(m.Body)); err != nil {
		return err
	}
	switch rand.N(120) {
	case 0:
		return errFire
	case 1:
		panic(errFire)
	case 2:
		return send("select 1/0")
	case 3:
		_, _ = tx.Exec(ctx, "no SQL")
	case 4:
		_, _ = tx.Query(ctx, "select generate_series(1, 1000)")
	case 5:
		return send("rollback")
	case 6:
		return send("select 1; rollback; begin")
	case 7:
		return send("select pg_terminate_backend(pg_backend_pid())")
	case 8:
		return send("select pg_cancel_backend(pg_backend_pid())")
	case 9:
		_, err := tx.Begin(ctx) // and nobody ends it
		return err
	case 10:
		_, err := tx.Exec(ctx, "select 1; commit") // which counts as a failure, and then as a duplicate
		return err
	}
	return nil
}

// burn publishes, and lets things go wrong, until all is settled.
func (f *fire) burn(runners int) {
	for range runners {
		f.start()
	}
	for _, m := range f.sent {
		f.broker.Publish(m)
		if f.random.IntN(10) == 0 {
			f.broker.Publish(m) // the producer retries at once
		}
		switch f.random.IntN(200) {
		case 0:
			f.broker.Disconnect()
		case 1:
			f.MustExec(f.t, `select pg_terminate_backend(pid) from pg_stat_activity
				where pid <> pg_backend_pid() and state like 'idle in transaction%' and query like '%' || $1 || '%' limit 1`, f.Schema)
		}
	}
	ctx, cancel := context.WithTimeout(f.ctx, 50*time.Second)
	defer cancel()
	require.NoError(f.t, f.broker.Drained(ctx))
}

func (f *fire) requireRight() {
	f.t.Helper()
	require.Zero(f.t, f.Int(f.t, "select count(*) from %s.failed_messages"))
	require.Equal(f.t, len(f.sent), f.Processed(f.t), "rows")
	require.Equal(f.t, len(f.sent), f.Int(f.t, "select count(*) from %s.ordered"), "effects")
	require.Equal(f.t, len(f.sent), f.Int(f.t, "select count(distinct (key, i)) from %s.ordered"), "messages that have taken effect")
	require.Zero(f.t, f.Int(f.t, `select count(*) from
		(select i - lag(i, 1, -1) over (partition by key order by n) as step from %s.ordered where key <> '') s where step <> 1`), "out of order")
}
