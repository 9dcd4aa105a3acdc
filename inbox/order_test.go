package inbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// Of 1000 messages with 20 keys, 5 fail twice. Per key, all take effect in their
// order.
func TestKeepOrder(t *testing.T) {
	b := newRunnerBench(t)
	const messages, keys, failing = 1000, 20, 5
	b.MustExec(t, "create table %s.ordered (n bigserial, key text not null, i int not null)")
	insert := b.SQL("insert into %s.ordered (key, i) values ($1, $2)")
	var mu sync.Mutex
	fails := map[string]int{}
	for _, i := range rand.Perm(messages)[:failing] {
		fails[fmt.Sprint("m", i)] = 2
	}
	b.cfg.KeepOrder, b.cfg.Workers, b.cfg.Attempts = true, 4, 1
	b.handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		mu.Lock()
		fail := fails[m.ID] > 0
		fails[m.ID]--
		mu.Unlock()
		if fail {
			return errHandler
		}
		_, err := tx.Exec(ctx, insert, string(m.Key), string(m.Body))
		return err
	}
	b.start()
	for i := range messages {
		b.broker.Publish(&consumer.Message{ID: fmt.Sprint("m", i), Key: fmt.Appendf(nil, "k%d", i%keys), Body: fmt.Append(nil, i)})
	}
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.ordered") == messages }, time.Minute, 10*time.Millisecond)
	b.requireAside(0)
	b.requireChanges(messages)
	require.Zero(t, b.Int(t, `select count(*) from (select i - lag(i) over (partition by key order by n) as step from %s.ordered) s where step <= 0`))
}

// What is set aside for good holds its key back until somebody lets it go, and no
// other.
func TestKeepOrderWaitsForADecision(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.KeepOrder = true
	var handled []string
	b.handle = func(_ context.Context, _ pgx.Tx, m *consumer.Message) error {
		if m.ID == "a1" {
			return consumer.Permanent(errHandler)
		}
		handled = append(handled, m.ID)
		return nil
	}
	stop := b.start()
	key := func(id string) *consumer.Message {
		return &consumer.Message{ID: id, Key: []byte(id[:1]), Body: []byte("x")}
	}
	b.publish(key("a1"), key("b1"), key("a2"), key("b2"), key("a3"), &consumer.Message{ID: "c1", Body: []byte("x")})
	b.requireAside(3)
	require.Equal(t, "permanent", b.reason("a1"))
	require.Equal(t, "behind", b.reason("a2"))

	// To make a later one due by hand does not let it overtake.
	b.MustExec(t, "update %s.failed_messages set next_attempt_at = now() where reason = 'behind'")
	f, err := b.retry(succeed)
	require.NoError(t, err)
	require.Nil(t, f)

	b.MustExec(t, "delete from %s.failed_messages where message_id = 'a1'")
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.failed_messages") == 0 }, 30*time.Second, 10*time.Millisecond)
	b.publish(key("a4"))
	stop()
	a := slices.DeleteFunc(slices.Clone(handled), func(id string) bool { return id[0] != 'a' })
	require.Equal(t, []string{"a2", "a3", "a4"}, a)
	require.Len(t, handled, 6)
}

func TestKeepOrderOffLetsLaterOnesGoOn(t *testing.T) {
	b := newRunnerBench(t)
	b.handle = func(_ context.Context, _ pgx.Tx, m *consumer.Message) error {
		if m.ID == "a1" {
			return consumer.Permanent(errHandler)
		}
		return nil
	}
	b.start()
	for _, id := range []string{"a1", "a2"} {
		b.broker.Publish(&consumer.Message{ID: id, Key: []byte("a"), Body: []byte("x")})
	}
	b.publish()
	b.requireAside(1)
	b.requireChanges(1)
}

// Whoever deletes a row by hand does not know what stands behind it.
func TestKeepOrderFindsWhatWaitsForNothing(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.KeepOrder = true
	b.start()
	m := &consumer.Message{ID: "a2", Key: []byte("a"), Body: []byte("x")}
	b.setAside(consumer.Failure{Message: m, Reason: consumer.ReasonBehind, RetryIn: forGood})
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.failed_messages") == 0 }, 30*time.Second, 10*time.Millisecond)
	b.requireChanges(1)
}

// What was set aside for a reason of its own runs in the order of its key all the
// same when an operator makes all of it due, and waits while an earlier one fails.
func TestKeepOrderOfWhatIsMadeDue(t *testing.T) {
	b := newRunnerBench(t)
	b.cfg.KeepOrder, b.cfg.Horizon = true, time.Hour
	b.cfg.RetryLater = []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}
	var order []string // one after the other
	failed := false
	b.handle = func(_ context.Context, _ pgx.Tx, m *consumer.Message) error {
		if m.ID == "a0" && !failed {
			failed = true
			return errHandler
		}
		order = append(order, m.ID)
		return nil
	}
	stop := b.start()
	for i := range 5 {
		b.broker.Publish(&consumer.Message{ID: fmt.Sprint("a", i), Key: []byte("a"), Body: []byte("x"), Time: time.Now().Add(-2 * time.Hour)})
	}
	b.publish()
	b.requireAside(5)
	require.Equal(t, "late", b.reason("a4"))
	b.MustExec(t, "update %s.failed_messages set next_attempt_at = now()")
	require.Eventually(t, func() bool { return b.Int(t, "select count(*) from %s.failed_messages") == 0 }, 30*time.Second, 10*time.Millisecond)
	stop()
	require.Equal(t, []string{"a0", "a1", "a2", "a3", "a4"}, order)
}
