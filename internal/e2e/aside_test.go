package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/faultproxy"
)

// attempts notes the attempts that a handler sees.
type attempts struct {
	mu   sync.Mutex
	seen map[string][]int
}

func (a *attempts) of(id string) []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen[id])
}

// failing has its effect, and then fails with what err returns, nil included.
func (a *attempts) failing(w *world, err func(m *consumer.Message) error) consumer.HandlerFunc[pgx.Tx] {
	effect := w.effect()
	return func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		a.mu.Lock()
		if a.seen == nil {
			a.seen = map[string][]int{}
		}
		a.seen[m.ID] = append(a.seen[m.ID], m.Attempt)
		a.mu.Unlock()
		if e := effect(ctx, tx, m); e != nil {
			return e
		}
		return err(m)
	}
}

func TestSetAsideSucceedsLater(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, w *world, f feed) {
		f.publish(message("a", "x"), message("next", "x"))
		var made attempts
		told := newTold()
		p := f.parts()
		p.RetryLater, p.OnSetAside = []time.Duration{0}, told.note
		p.Handler = made.failing(w, func(m *consumer.Message) error {
			if m.ID == "a" && m.Attempt <= 3 {
				return io.EOF
			}
			return nil
		})
		k := w.start(p)
		eventually(t, "both have taken effect", func() bool { return w.effects() == 2 })
		eventually(t, "nothing is set aside any more", func() bool { return w.setAside() == 0 })
		f.stopDrained(k)
		w.requireEffects("a", "next")
		w.requireOneEffect("a", 4)
		require.Equal(t, []int{1, 2, 3, 4}, made.of("a"))
		require.Equal(t, []int{1}, made.of("next"))
		require.Equal(t, 1, w.log.count(lineAside))
		require.Empty(t, told.all(), "it was not for good")
	})
}

// What trying again does not help is set aside at its first attempt, also an
// error that only Classify knows to be so.
func TestSetAsideForGoodAtOnce(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, w *world, f feed) {
		f.publish(message("permanent", `{}`), message("broken", `{"n":`), message("null", "null"), message("classified", `{}`), message("good", `{}`))
		var made attempts
		told := newTold()
		p := f.parts()
		p.RetryLater, p.OnSetAside = []time.Duration{0}, told.note
		p.Classify = func(err error) error {
			if errors.Is(err, io.ErrShortWrite) {
				return consumer.Permanent(err)
			}
			return err
		}
		handle := made.failing(w, func(m *consumer.Message) error {
			switch m.ID {
			case "permanent":
				return fmt.Errorf("wrapped: %w", consumer.Permanent(io.EOF))
			case "classified":
				return fmt.Errorf("wrapped: %w", io.ErrShortWrite)
			}
			return nil
		})
		p.Handler = consumer.JSON(func(ctx context.Context, tx pgx.Tx, _ map[string]int) error {
			return handle(ctx, tx, consumer.MessageFrom(ctx))
		})
		k := w.start(p)
		eventually(t, "all are settled", func() bool { return w.db.Processed(t) == 5 })
		f.stopDrained(k)
		require.ElementsMatch(t, []string{"permanent permanent 1 for good", "broken permanent 1 for good",
			"null permanent 1 for good", "classified permanent 1 for good"}, w.aside())
		require.ElementsMatch(t, []string{"permanent permanent", "broken permanent", "null permanent", "classified permanent"}, told.all())
		require.Equal(t, []int{1}, made.of("classified"))
		require.Equal(t, 1, w.effects())
		w.requireOneEffect("good", 1)
	})
}

// An operator lets it be tried again, after the handler was mended.
func TestSetAsideForGoodIsRetriedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.send("a")
	var broken = make(chan struct{})
	var made attempts
	p := w.asideParts()
	p.Handler = made.failing(w, func(*consumer.Message) error {
		select {
		case <-broken:
			return nil
		default:
			return consumer.Permanent(io.EOF)
		}
	})
	k := w.start(p)
	eventually(t, "set aside", func() bool { return slices.Equal(w.aside(), []string{"a permanent 1 for good"}) })
	close(broken)
	w.db.MustExec(t, "update %s.failed_messages set next_attempt_at = now() where message_id = 'a'")
	eventually(t, "it has taken effect", func() bool { return w.setAside() == 0 })
	k.stop()
	w.requireEffects("a")
	w.requireOneEffect("a", 2)
	w.q.requireReady(0)
}

func TestSetAsideForAsLongAsRetryAfterSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.send("a")
	p := w.asideParts() // whose Retry.Max is 50 ms
	var made attempts
	p.Handler = made.failing(w, func(*consumer.Message) error { return consumer.RetryAfter(time.Hour, io.EOF) })
	k := w.start(p)
	eventually(t, "set aside", func() bool { return w.setAside() == 1 })
	k.stop()
	require.Equal(t, []string{"a failed 1 later"}, w.aside())
	require.Equal(t, 1, w.db.Int(t, "select count(*) from %s.failed_messages where next_attempt_at = failed_at + interval '1 hour'"))
	require.Equal(t, []int{1}, made.of("a"))
	require.Zero(t, w.effects())
	w.q.requireReady(0)
}

func TestSetAsideFollowsRetryLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.q.send("a")
	schedule := []time.Duration{time.Minute, 10 * time.Minute, time.Hour}
	told := newTold()
	var made attempts
	p := w.asideParts()
	p.RetryLater, p.OnSetAside = schedule, told.note
	p.Handler = made.failing(w, func(m *consumer.Message) error { return fmt.Errorf("attempt %d", m.Attempt) })
	k := w.start(p)
	for i, wait := range schedule {
		state := []string{fmt.Sprintf("a failed %d later", 3+i)}
		eventually(t, "attempts in place, or another one", func() bool { return slices.Equal(w.aside(), state) })
		require.Equal(t, 1, w.db.Int(t, `select count(*) from %s.failed_messages where error = $1 and unfinished = 0
			and next_attempt_at between last_failed_at + $2::interval * 0.9 and last_failed_at + $2::interval`,
			fmt.Sprint("attempt ", 3+i), wait), "after %v, less up to a tenth: %s", wait, made.of("a"))
		require.Empty(t, told.all())
		w.db.MustExec(t, "update %s.failed_messages set next_attempt_at = now()") // as time does
	}
	eventually(t, "for good", func() bool { return slices.Equal(w.aside(), []string{"a failed 6 for good"}) })
	eventually(t, "told", func() bool { return len(told.all()) == 1 })
	k.stop()
	require.Equal(t, []string{"a failed"}, told.all())
	require.Equal(t, []int{1, 2, 3, 4, 5, 6}, made.of("a"))
	require.Zero(t, w.effects())
	w.q.requireReady(0)
}

// received is what a handler saw of a message, at each attempt.
type received struct {
	mu sync.Mutex
	ms []consumer.Message
}

func (r *received) failThenSucceed(w *world) consumer.HandlerFunc[pgx.Tx] {
	effect := w.effect()
	return func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ms = append(r.ms, *m)
		if m.Attempt == 1 {
			return io.EOF
		}
		return effect(ctx, tx, &consumer.Message{ID: m.ID, Attempt: m.Attempt}) // the column for the key is text
	}
}

func (r *received) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ms)
}

// requireSame requires that the attempt from failed_messages saw what the first
// one saw.
func (r *received) requireSame(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.ms, 2)
	before, after := r.ms[0], r.ms[1]
	require.Equal(t, []int{1, 2}, []int{before.Attempt, after.Attempt})
	require.True(t, before.Time.Equal(after.Time), "%v, and then %v", before.Time, after.Time)
	require.Nil(t, after.Raw)
	require.False(t, after.Redelivered)
	before.Redelivered = false // with Kafka it is true for the first after each assignment
	before.Raw, before.Attempt, before.Hash, before.Time = nil, after.Attempt, after.Hash, after.Time
	require.Equal(t, before, after)
}

// anyBytes holds every byte.
var anyBytes = func() []byte {
	all := make([]byte, 0, 3*256)
	for b := range 256 {
		all = append(all, byte(b), 0, byte(b))
	}
	return all
}()

func TestSetAsideKeepsAllOfAnAMQPMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	headers := amqp.Table{}
	for _, c := range headerCases {
		headers[c.key] = c.value
	}
	var got received
	p := w.asideParts()
	p.Attempts, p.RetryLater, p.Handler = 1, []time.Duration{0}, got.failThenSucceed(w)
	p.Rabbit.Key = func(*amqp.Delivery) []byte { return anyBytes }
	w.q.publish(amqp.Publishing{MessageId: "a", Type: "order", Timestamp: time.Unix(1_700_000_001, 0), Headers: headers, Body: anyBytes})
	k := w.start(p)
	eventually(t, "tried twice", func() bool { return got.count() == 2 && w.setAside() == 0 })
	k.stop()
	got.requireSame(t)
	for _, c := range headerCases {
		require.Equal(t, c.text, got.ms[1].Headers.Get(c.key), c.key)
	}
	require.True(t, bytes.Equal(anyBytes, got.ms[1].Body))
	w.requireEffects("a")
}

func TestSetAsideKeepsAllOfAKafkaRecord(t *testing.T) {
	t.Parallel()
	headers := consumer.Headers{
		{Key: "any", Value: anyBytes}, {Key: "nothing", Value: nil}, {Key: "empty", Value: []byte{}},
		{Key: "twice", Value: []byte("1")}, {Key: "twice", Value: []byte("2")}, {Key: "", Value: []byte("no name")},
		{Key: "é", Value: []byte{0}}, {Key: "long", Value: bytes.Repeat([]byte("x"), 70_000)},
	}
	for name, body := range map[string][]byte{"tombstone": nil, "empty": {}, "any": anyBytes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			f := newKafkaFeed(t, w)
			var got received
			p := f.parts()
			p.Attempts, p.RetryLater, p.Handler = 1, []time.Duration{0}, got.failThenSucceed(w)
			f.publish(&consumer.Message{ID: "a", Key: bytes.Repeat(anyBytes, 100), Body: body, Headers: headers, Time: time.UnixMilli(1_700_000_000_123)})
			k := w.start(p)
			eventually(t, "tried twice", func() bool { return got.count() == 2 && w.setAside() == 0 })
			f.stopDrained(k)
			got.requireSame(t)
			require.Equal(t, body == nil, got.ms[1].Body == nil)
			require.True(t, bytes.Equal(body, got.ms[1].Body))
			require.Len(t, got.ms[1].Headers, len(headers)+1)
			w.requireEffects("a")
		})
	}
}

// The database goes away under an attempt from failed_messages, again and again:
// that is no attempt, and no crash.
func TestOutageUnderARetryOfWhatIsSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in, err := inbox.NewWithConfig(w.db.Pool, inbox.Config{Schema: w.db.Schema})
	require.NoError(t, err)
	_, err = in.SetAside(t.Context(), subscriber, consumer.Failure{
		Message: message("a", "x"), Reason: consumer.ReasonFailed, Error: "no", Attempts: 3,
	})
	require.NoError(t, err)
	proxy, through := faultproxy.InFrontOf(t, w.databaseURL)
	begun := make(chan struct{})
	var made attempts
	told := newTold()
	p := w.asideParts()
	p.DatabaseURL, p.OnSetAside = through, told.note
	outages := 0
	p.Handler = made.failing(w, func(*consumer.Message) error {
		if outages++; outages > 4 {
			return nil
		}
		proxy.Refuse()
		proxy.Cut()
		begun <- struct{}{}
		return errors.New("whatever the handler makes of it")
	})
	k := w.start(p)
	for range 4 {
		await(t, "the database is away under the handler", begun)
		eventually(t, "paused", func() bool { return k.Health().State == consumer.Paused })
		require.Equal(t, 3, w.db.Int(t, "select attempts from %s.failed_messages"))
		proxy.Accept()
	}
	eventually(t, "it has taken effect", func() bool { return w.effects() == 1 })
	k.stop()
	w.requireOneEffect("a", 4)
	require.Equal(t, []int{4, 4, 4, 4, 4}, made.of("a"))
	require.Empty(t, told.all())
	require.Zero(t, w.log.count(lineAside))
}
