package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/failures"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/faultproxy"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/servers"
)

func TestChaos(t *testing.T) {
	for _, keep := range []bool{true, false} {
		for _, maxBatch := range []int{1, 20} {
			for _, iso := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
				t.Run(fmt.Sprint("keep ", keep, " batch ", maxBatch, " ", iso), func(t *testing.T) {
					t.Parallel()
					chaos(t, pgtest.URL(t), nil, keep, maxBatch, iso)
				})
			}
		}
	}
}

// The same while the server is killed and started.
func TestChaosKills(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	server, err := servers.StartPostgreSQL(ctx, t.TempDir(), servers.PostgreSQLConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) { chaos(t, server.URL(), server, keep, 5, pgx.ReadCommitted) })
	}
}

func chaos(t *testing.T, url string, server *servers.PostgreSQL, keep bool, maxBatch int, iso pgx.TxIsoLevel) {
	b := benchOn(t, pgtest.On(t, url), inbox.Config{})
	seconds, _ := strconv.Atoi(os.Getenv("CHAOS"))
	if seconds == 0 {
		seconds = 10
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	b.MustExec(t, "create table %s.log (n bigserial, id text, key text, seq int)")
	broker := memory.NewWithConfig(memory.Config{Streams: 4})
	proxy, through := faultproxy.InFrontOf(t, url)
	var wg sync.WaitGroup
	stopRunners, endRunners := context.WithCancel(ctx)
	handler := consumer.HandlerFunc[pgx.Tx](func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		seq, _ := strconv.Atoi(m.Headers.Get("seq"))
		if _, err := tx.Exec(ctx, b.SQL("insert into %s.log (id, key, seq) values ($1, $2, $3)"), m.ID, string(m.Key), seq); err != nil {
			return err
		}
		switch n := rand.IntN(100); {
		case n < 5:
			return errHandler
		case n == 5:
			panic("no")
		case n == 6:
			return consumer.RetryAfter(20*time.Millisecond, errHandler)
		case n == 7:
			_, err := tx.Exec(ctx, "select 1; rollback; begin")
			return err
		case n == 8:
			_, _ = tx.Exec(ctx, "select nonsense")
			return nil
		case n == 9:
			time.Sleep(30 * time.Millisecond)
		}
		return nil
	})
	for i := range 3 {
		wg.Go(func() {
			for stopRunners.Err() == nil { // each life is a process
				cfg, _ := pgxpool.ParseConfig(through)
				cfg.ConnConfig.RuntimeParams["search_path"] = ""
				cfg.MaxConns = int32(1 + i*2)
				pool, err := pgxpool.NewWithConfig(ctx, cfg)
				if err != nil {
					t.Error(err)
					return
				}
				in, _ := inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema, Isolation: iso, LockTimeout: 300 * time.Millisecond, ClaimTimeout: time.Second, CommitTimeout: time.Second})
				r, err := consumer.New(consumer.Config[pgx.Tx]{
					Subscriber: subscriber, Source: broker, Inbox: in, Handler: handler, OnSetAside: func(_ context.Context, f consumer.Failure) {
						if f.Reason == consumer.ReasonCrash {
							t.Error("set aside as a crash: ", f.Message.ID)
						}
					},
					KeepOrder: keep, MaxBatch: maxBatch, Workers: 1 + i,
					Attempts: 2, Retry: consumer.Backoff{Min: time.Millisecond, Max: 5 * time.Millisecond},
					RetryLater: []time.Duration{5 * time.Millisecond, 5 * time.Millisecond, 5 * time.Millisecond}, RetryPoll: 10 * time.Millisecond,
					Probe: consumer.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Error(err)
					pool.Close()
					return
				}
				life, end := context.WithTimeout(stopRunners, time.Duration(1000+rand.IntN(3000))*time.Millisecond)
				if err := r.Run(life); err != nil && stopRunners.Err() == nil {
					t.Log("run", err)
				}
				end()
				pool.Close()
			}
		})
	}
	const keys = 7
	seqs := [keys]int{}
	let := map[string]bool{}
	trouble, calm := context.WithCancel(ctx)
	store, err := failures.New(b.Pool, failures.Config{Schema: b.Schema})
	require.NoError(t, err)
	var hands sync.WaitGroup
	if server != nil {
		hands.Go(func() {
			for trouble.Err() == nil {
				time.Sleep(time.Duration(500+rand.IntN(1500)) * time.Millisecond)
				if err := server.Kill(ctx); err != nil {
					t.Error(err)
				}
				if err := server.Start(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	hands.Go(func() {
		for trouble.Err() == nil {
			time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
			switch rand.IntN(12) {
			case 4:
				proxy.Cut()
			case 5:
				proxy.CutBefore(faultproxy.Reply, "COMMIT\x00")
			case 6:
				proxy.CutBefore(faultproxy.Request, "commit")
			case 7:
				proxy.CutBefore(faultproxy.Reply, "INSERT 0 1\x00")
			case 8:
				proxy.CutBefore(faultproxy.Reply, "UPDATE 1\x00")
			case 9:
				if rand.IntN(5) == 0 {
					proxy.Refuse()
					proxy.Cut()
					time.Sleep(300 * time.Millisecond)
					proxy.Accept()
				}
			case 10:
				if rand.IntN(10) == 0 {
					proxy.Stall()
					time.Sleep(2500 * time.Millisecond)
					proxy.Resume()
				}
			case 0:
				broker.Disconnect()
			case 1, 2:
				_, _ = b.Pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and query like '%'||$1||'%' order by random() limit 1`, b.Schema)
			case 3:
				_, _ = b.Pool.Exec(ctx, `select pg_cancel_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and query like '%'||$1||'%' order by random() limit 1`, b.Schema)
			}
		}
	})
	hands.Go(func() {
		for trouble.Err() == nil {
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			if rand.IntN(3) == 0 {
				_, _ = store.RetryAll(ctx, failures.Filter{}, failures.RetryOptions{})
				continue
			}
			var id string
			if b.Pool.QueryRow(ctx, b.SQL("select message_id from %s.failed_messages order by random() limit 1")).Scan(&id) != nil {
				continue
			}
			if rand.IntN(2) == 0 {
				_ = store.Retry(ctx, subscriber, id)
			} else if store.LetGo(ctx, subscriber, id, "chaos") == nil {
				let[id] = true
			}
		}
	})
	total := 0
	var dups []*consumer.Message
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		k := rand.IntN(keys)
		m := message("", "x")
		m.Hash = nil
		m.ID = fmt.Sprintf("k%d-%d", k, seqs[k])
		m.Headers = consumer.Headers{{Key: "seq", Value: []byte(strconv.Itoa(seqs[k]))}}
		m.Key = []byte{byte('a' + k)}
		seqs[k]++
		total++
		broker.Publish(m)
		if rand.IntN(10) == 0 {
			dups = append(dups, m)
		}
		if len(dups) > 5 {
			broker.Publish(dups[0])
			dups = dups[1:]
		}
		if total%20 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	calm()
	hands.Wait()
	if err := broker.Drained(ctx); err != nil {
		t.Error("not drained", err)
	}
	deadline := time.Now().Add(60 * time.Second)
	for b.Int(t, "select count(*) from %s.failed_messages") > 0 && time.Now().Before(deadline) {
		_, _ = store.RetryAll(ctx, failures.Filter{}, failures.RetryOptions{})
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(time.Second) // for what is owed
	endRunners()
	wg.Wait()
	t.Logf("total %d, let go %d, effects %d", total, len(let), b.Int(t, "select count(*) from %s.log"))
	require.Zero(t, b.Int(t, "select count(*) from %s.failed_messages"))
	require.Zero(t, b.Int(t, "select count(*) from %s.let_go_messages where reason = 'crash'"), "crash")
	require.Equal(t, total, b.Processed(t))
	require.Zero(t, b.Int(t, "select count(*) from (select id from %s.log group by id having count(*) > 1) x"), "doubled")
	require.Zero(t, b.Int(t, "select count(*) from %s.processed_messages p where not exists (select from %s.log l where l.id = message_id) and not exists (select from %s.let_go_messages g where g.message_id = p.message_id)"), "lost")
	require.Zero(t, b.Int(t, "select count(*) from %s.log l where exists (select from %s.let_go_messages g where g.message_id = l.id)"), "let go, and yet processed")
	require.Zero(t, b.Int(t, "select count(*) from %s.begun_attempts"), "begun attempts left")
	if keep {
		require.Zero(t, b.Int(t, "select count(*) from %s.log a join %s.log b on a.key = b.key and a.seq < b.seq and a.n > b.n"), "order")
	}
}
