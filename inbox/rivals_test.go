package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/pgtest"
)

// answer is what one Process returned.
type answer struct {
	verdicts []consumer.Verdict
	err      error
}

func (b *bench) start(f apply, ms ...*consumer.Message) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		v, err := b.process(f, ms...)
		done <- answer{v, err}
	}()
	return done
}

// held starts a Process that stops in its handler until release is closed, and
// then returns with err.
func (b *bench) held(release <-chan struct{}, err error, ms ...*consumer.Message) <-chan answer {
	in := make(chan struct{})
	done := b.start(func(ctx context.Context, tx pgx.Tx, fresh []*consumer.Message) error {
		e := b.record(ctx, tx, fresh)
		close(in)
		<-release
		return errors.Join(e, err)
	}, ms...)
	select {
	case <-in:
	case a := <-done:
		b.t.Fatal("did not begin:", a.err)
	}
	return done
}

// waiting waits until n sessions wait for a lock of this test's table.
func (b *bench) waiting(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		return b.Int(b.t, `select count(*) from pg_stat_activity
			where wait_event_type = 'Lock' and query like '%' || $1 || '%'`, b.Schema) == n
	}, 10*time.Second, 5*time.Millisecond, "nobody waits for the rival")
}

func TestSecondCopyWaitsForTheFirst(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  error
		second consumer.Verdict
	}{
		{"which commits late", nil, consumer.Duplicate},
		{"which rolls back late", errHandler, consumer.Processed},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			release := make(chan struct{})
			first := b.held(release, c.first, message("m1", "x"))
			second := b.start(b.record, message("m1", "x"))
			b.waiting(1)
			close(release)
			require.ErrorIs(t, (<-first).err, c.first)
			a := <-second
			require.NoError(t, a.err)
			require.Equal(t, verdicts(c.second), a.verdicts)
			b.requireEffects(1)
		})
	}
}

// The rival's row is committed after our claim began, so that only a later
// look can find its hash.
func TestMismatchWithARivalThatCommitsLate(t *testing.T) {
	b := newBench(t, inbox.Config{})
	release := make(chan struct{})
	first := b.held(release, nil, message("m1", "x"))
	second := b.start(b.record, message("m0", "x"), message("m1", "other"))
	b.waiting(1)
	close(release)
	require.NoError(t, (<-first).err)
	a := <-second
	require.NoError(t, a.err)
	require.Equal(t, verdicts(consumer.Processed, consumer.Mismatch), a.verdicts)
	b.requireEffects(2)
}

func TestLockTimeoutIsContention(t *testing.T) {
	b := newBench(t, inbox.Config{LockTimeout: 50 * time.Millisecond})
	release := make(chan struct{})
	first := b.held(release, nil, message("m1", "x"))
	_, err := b.process(b.record, message("m1", "x"))
	require.ErrorIs(t, err, consumer.ErrContention)
	close(release)
	require.NoError(t, (<-first).err)
	b.requireEffects(1)
	b.requireIdle()
}

func TestHandlersLockTimeoutIsContention(t *testing.T) {
	b := newBench(t, inbox.Config{LockTimeout: 50 * time.Millisecond})
	b.MustExec(t, "create table %s.stock (id int)")
	b.MustExec(t, "insert into %s.stock values (1)")
	tx, err := b.Pool.Begin(b.ctx)
	require.NoError(t, err)
	defer tx.Rollback(b.ctx)
	_, err = tx.Exec(b.ctx, b.SQL("select from %s.stock for update"))
	require.NoError(t, err)
	for _, swallow := range []bool{false, true} {
		_, err = b.process(b.do(func(ctx context.Context, tx pgx.Tx) error {
			err := sql(b.SQL("update %s.stock set id = 2"))(ctx, tx)
			if swallow {
				return nil
			}
			return fmt.Errorf("book: %w", err)
		}), message("m1", "x"))
		require.ErrorIs(t, err, consumer.ErrContention)
	}
	b.requireEffects(0)
}

func TestSerializationFailureIsContention(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			b := newBench(t, inbox.Config{Isolation: level})
			release := make(chan struct{})
			first := b.held(release, nil, message("m1", "x"))
			second := b.start(b.record, message("m1", "x"))
			b.waiting(1)
			close(release)
			require.NoError(t, (<-first).err)
			require.ErrorIs(t, (<-second).err, consumer.ErrContention)
			got, err := b.process(b.record, message("m1", "x"))
			require.NoError(t, err)
			require.Equal(t, verdicts(consumer.Duplicate), got)
			b.requireEffects(1)
		})
	}
}

func TestIsolationIsWhatTheConfigSays(t *testing.T) {
	b := newBench(t, inbox.Config{Isolation: pgx.Serializable})
	d := newDefaultIsolation(t)
	for in, want := range map[*bench]string{b: "serializable", d: "read committed"} {
		var got []string
		show := func(ctx context.Context, tx pgx.Tx, _ []*consumer.Message) error {
			var level string
			err := tx.QueryRow(ctx, "show transaction_isolation").Scan(&level)
			got = append(got, level)
			return err
		}
		s := in.session()
		first, ahead, later := message("m1", "x"), message("m2", "x"), message("m3", "x")
		_, err := s.Process(in.ctx, []*consumer.Message{first}, show, then(ahead))
		require.NoError(t, err)
		for _, m := range []*consumer.Message{ahead, later} {
			_, err := s.Process(in.ctx, []*consumer.Message{m}, show, nil)
			require.NoError(t, err)
		}
		require.Equal(t, []string{want, want, want}, got)
	}
}

// A handler may make its own transaction read-only, or serializable, and never
// the next one.
func TestNothingIsInheritedFromTheTransactionBefore(t *testing.T) {
	for _, set := range []string{"set transaction read only", "set local transaction_read_only = on"} {
		t.Run(set, func(t *testing.T) {
			b := newBench(t, inbox.Config{})
			s := b.session()
			first, second := message("m1", "x"), message("m2", "x")
			_, err := s.Process(b.ctx, []*consumer.Message{first}, b.do(sql(set)), then(second))
			require.NoError(t, err)
			_, err = s.Process(b.ctx, []*consumer.Message{second}, b.record, nil)
			require.NoError(t, err)
			b.requireEffects(2)
		})
	}
}

// Batches that hold the same messages in opposite order must not deadlock.
func TestBatchesInOppositeOrder(t *testing.T) {
	b := newBench(t, inbox.Config{})
	const n = 60
	forward, backward := make([]*consumer.Message, n), make([]*consumer.Message, n)
	for i := range n {
		id := fmt.Sprintf("m%03d", i)
		forward[i], backward[n-1-i] = message(id, "x"), message(id, "x")
	}
	for round := range 20 {
		var all sync.WaitGroup
		for _, ms := range [][]*consumer.Message{forward, backward, forward, backward} {
			all.Go(func() {
				_, err := b.Process(b.ctx, fmt.Sprint("round ", round), ms, b.record)
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	b.requireEffects(20 * n)
}

func TestDeadlockInHandlersIsContention(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.MustExec(t, "create table %s.accounts (id int primary key, n int)")
	b.MustExec(t, "insert into %s.accounts values (1, 0), (2, 0)")
	update := func(id int) func(ctx context.Context, tx pgx.Tx) error {
		return sql(b.SQL(fmt.Sprintf("update %%s.accounts set n = n + 1 where id = %d", id)))
	}
	var both sync.WaitGroup
	both.Add(2)
	cross := func(first, second int) apply {
		return b.do(func(ctx context.Context, tx pgx.Tx) error {
			if err := update(first)(ctx, tx); err != nil {
				return err
			}
			both.Done()
			both.Wait()
			return update(second)(ctx, tx)
		})
	}
	one, two := b.start(cross(1, 2), message("m1", "x")), b.start(cross(2, 1), message("m2", "x"))
	errs := []error{(<-one).err, (<-two).err}
	loser := errors.Join(errs...)
	require.ErrorIs(t, loser, consumer.ErrContention)
	require.ErrorContains(t, loser, "deadlock")
	require.True(t, errs[0] == nil || errs[1] == nil, "one of them wins")
	b.requireEffects(1)
}

// newDefaultIsolation is a bench whose server's default is another level.
func newDefaultIsolation(t *testing.T) *bench {
	db := pgtest.New(t)
	cfg := db.Config().Copy()
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	db.Pool.Close()
	db.Pool = pool
	return benchOn(t, db, inbox.Config{})
}
