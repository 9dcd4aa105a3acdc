package inbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/faultproxy"
	"github.com/ackafter/ackafter/internal/pgtest"
)

func TestHostileStress(t *testing.T) {
	rounds := 1
	if s := os.Getenv("ROUNDS"); s != "" {
		rounds, _ = strconv.Atoi(s)
	}
	for r := range rounds {
		for _, c := range []struct {
			name                      string
			iso                       pgx.TxIsoLevel
			mode                      pgx.QueryExecMode
			maxBatch, workers, buffer int
			keys, runners             int
			keepOrder, later, batchH  bool
		}{
			{"rc", pgx.ReadCommitted, pgx.QueryExecModeCacheStatement, 64, 8, 300, 5, 2, false, false, false},
			{"serializable", pgx.Serializable, pgx.QueryExecModeCacheStatement, 16, 4, 256, 8, 2, false, false, false},
			{"small buffer", pgx.ReadCommitted, pgx.QueryExecModeExec, 30, 8, 32, 3, 1, false, false, false},
			{"keep order", pgx.ReadCommitted, pgx.QueryExecModeCacheStatement, 32, 4, 256, 10, 2, true, true, false},
			{"simple", pgx.ReadCommitted, pgx.QueryExecModeSimpleProtocol, 32, 4, 128, 6, 2, false, false, false},
			{"batch handler later", pgx.ReadCommitted, pgx.QueryExecModeCacheDescribe, 32, 4, 128, 6, 2, false, true, true},
		} {
			t.Run(fmt.Sprint(c.name, r), func(t *testing.T) {
				b := newRunnerBench(t)
				ctx, cancelCtx := context.WithTimeout(context.Background(), 90*time.Second)
				t.Cleanup(cancelCtx)
				b.ctx = ctx
				proxy, through := faultproxy.InFrontOf(t, pgtest.URL(t))
				pc, err := pgxpool.ParseConfig(through)
				require.NoError(t, err)
				pc.ConnConfig.DefaultQueryExecMode = c.mode
				pc.MaxConns = int32(c.workers*c.runners + 2)
				pool, err := pgxpool.NewWithConfig(ctx, pc)
				require.NoError(t, err)
				t.Cleanup(pool.Close)
				b.cfg.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema, Isolation: c.iso, LockTimeout: 500 * time.Millisecond})
				require.NoError(t, err)
				f := &fire{runnerBench: b, random: rand.New(rand.NewPCG(rand.Uint64(), 0))}
				b.broker = memory.NewWithConfig(memory.Config{Streams: c.runners})
				b.MustExec(t, "create table %s.ordered (n bigserial, key text not null, i int not null, id text not null)")
				b.MustExec(t, "create table %s.acc (id int primary key, n int not null default 0)")
				b.MustExec(t, "insert into %s.acc select generate_series(0, 9)")
				b.cfg.Source = b.broker
				b.cfg.MaxBatch, b.cfg.Workers, b.cfg.Buffer = c.maxBatch, c.workers, c.buffer
				b.cfg.MaxTransactions = c.workers * c.runners
				b.cfg.Attempts, b.cfg.CrashLimit = 1000, 1000
				b.cfg.KeepOrder = c.keepOrder
				if c.later {
					b.cfg.Attempts = 1
					b.cfg.RetryLater = nil
					for range 300 {
						b.cfg.RetryLater = append(b.cfg.RetryLater, time.Millisecond)
					}
				}
				b.cfg.HandlerTimeout = 2 * time.Second
				b.cfg.Probe = consumer.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}
				handle := func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
					insert := b.SQL("insert into %s.ordered (key, i, id) values ($1, $2, $3)")
					i, _ := strconv.Atoi(string(m.Body))
					args := []any{string(m.Key), i, m.ID}
					switch rand.N(4) {
					case 0, 1:
						if err := inbox.Queue(tx, insert, args...); err != nil {
							return err
						}
					case 2:
						if _, err := tx.Exec(ctx, insert, args...); err != nil {
							return err
						}
					case 3:
						if err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
							return inbox.Queue(sp, insert, args...)
						}); err != nil {
							return err
						}
					}
					if rand.N(3) == 0 { // deadlocks
						if err := inbox.Queue(tx, b.SQL("update %s.acc set n = n + 1 where id = $1"), rand.N(10)); err != nil {
							return err
						}
					}
					switch rand.N(160) {
					case 0:
						return errFire
					case 1:
						panic(errFire)
					case 2:
						return inbox.Queue(tx, "select 1/0")
					case 3:
						_, _ = tx.Exec(ctx, "no SQL")
					case 4:
						_, _ = tx.Query(ctx, "select generate_series(1, 1000)")
					case 5:
						return inbox.Queue(tx, "select 1; rollback")
					case 6:
						return sql("--\rrollback and chain")(ctx, tx)
					case 7:
						return sql("select pg_terminate_backend(pg_backend_pid())")(ctx, tx)
					case 8:
						short, cancel := context.WithTimeout(ctx, 3*time.Millisecond)
						defer cancel()
						_, _ = tx.Exec(short, "select pg_sleep(1)")
						if rand.N(2) == 0 {
							return inbox.Queue(tx, "select 1")
						}
					case 9:
						sp, err := tx.Begin(ctx)
						if err != nil {
							return err
						}
						_ = inbox.Queue(sp, insert, args...)
						return sp.Rollback(ctx)
					case 10:
						_, _ = tx.Exec(ctx, "select 1; rollback")
						_, _ = tx.Exec(ctx, insert, args...)
					case 11:
						go func() {
							for range 5 {
								_, _ = tx.Exec(context.Background(), insert, args...)
							}
						}()
						return errFire
					case 12:
						_, err := tx.Exec(ctx, "savepoint s")
						return err
					case 13:
						_, _ = tx.Exec(ctx, "rollback to savepoint s")
					}
					return nil
				}
				b.cfg.Handler = consumer.HandlerFunc[pgx.Tx](handle)
				if c.batchH {
					b.cfg.Handler = nil
					b.cfg.Batch = consumer.BatchHandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, ms []*consumer.Message) error {
						for _, m := range ms {
							if err := func() (err error) {
								defer func() {
									if v := recover(); v != nil {
										err = fmt.Errorf("panic: %v", v)
									}
								}()
								return handle(ctx, tx, m)
							}(); err != nil && rand.N(2) == 0 {
								return consumer.Blame(ms[rand.N(len(ms))], err) // often the wrong one
							} else if err != nil {
								return err
							}
						}
						return nil
					})
				}
				const each = 200
				for i := range each {
					for k := range c.keys {
						f.sent = append(f.sent, &consumer.Message{ID: fmt.Sprintf("k%d-%d", k, i), Key: fmt.Appendf(nil, "k%d", k), Body: fmt.Append(nil, i)})
					}
					f.sent = append(f.sent, &consumer.Message{ID: fmt.Sprint("free-", i), Body: fmt.Append(nil, i)})
				}
				var stops []func()
				for range c.runners {
					stops = append(stops, b.start())
				}
				for n, m := range f.sent {
					b.broker.Publish(m)
					if f.random.IntN(10) == 0 {
						b.broker.Publish(m)
					}
					switch f.random.IntN(150) {
					case 0:
						b.broker.Disconnect()
					case 1:
						proxy.Cut()
					case 2:
						proxy.Refuse()
						proxy.Cut()
						time.Sleep(5 * time.Millisecond)
						proxy.Accept()
					case 3: // drain one, start another
						k := f.random.IntN(len(stops))
						stops[k]()
						stops[k] = b.start()
					}
					if n%10 == 0 {
						time.Sleep(3 * time.Millisecond)
					}
				}
				require.NoError(t, b.broker.Drained(ctx), "STUCK")
				require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.failed_messages") == 0 }, 40*time.Second, 20*time.Millisecond)
				require.Equal(t, len(f.sent), b.Processed(t), "rows")
				require.Zero(t, b.Int(t, "select count(*) from (select id from %s.ordered group by id having count(*) > 1) x"), "doubled")
				require.Equal(t, len(f.sent), b.Int(t, "select count(distinct id) from %s.ordered"), "lost")
				if !c.later || c.keepOrder {
					require.Zero(t, b.Int(t, `select count(*) from
			(select i - lag(i, 1, -1) over (partition by key order by n) as step from %s.ordered where key <> '') s where step <> 1`), "out of order")
				}
				t.Log("notes left", b.Int(t, "select count(*) from %s.begun_attempts"))
			})
		}
	}
}
