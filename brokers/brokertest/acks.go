package brokertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ackafter/ackafter/consumer"
)

func testUnackedAfterRestart(t *testing.T, h Harness) {
	h.publish(t, numbered(5)...)
	w := start(t, h)
	first := w.take(5)
	w.stop()
	w = start(t, h)
	again := w.take(5)
	sameAgain(t, h, first, again)
	w.stop()
}

func testUnackedAfterDisconnect(t *testing.T, h Harness) {
	h.publish(t, numbered(5)...)
	w := start(t, h)
	first := w.take(5)
	h.disconnect(t)
	await(t, first[0].ended, "the context of serve must end when its stream is lost, see consumer.Stream")
	again := w.take(5)
	sameAgain(t, h, first, again)
	if _, err := first[0].stream.Next(t.Context(), 1); err == nil {
		t.Error("Stream.Next must return io.EOF once the stream has ended, see consumer.Stream")
	}
	for _, d := range again {
		ack(t, d)
	}
	w.stop()
}

func sameAgain(t *testing.T, h Harness, first, again []delivery) {
	t.Helper()
	if !slices.Equal(bodies(first), bodies(again)) {
		t.Errorf("what was not acknowledged must be delivered again, in order: first %q, then %q", bodies(first), bodies(again))
	}
	for _, d := range again {
		if h.Features.Redelivered && !d.Redelivered {
			t.Errorf("Message.Redelivered must be true on a second delivery: %s", d.Position)
		}
	}
}

func testAcked(t *testing.T, h Harness) {
	h.publish(t, numbered(200)...)
	w := start(t, h)
	ds := make([]delivery, 0, 200)
	var wg sync.WaitGroup
	errs := make([]error, 200)
	// In groups, so that a source with a small prefetch is not stuck.
	for len(ds) < 200 {
		group := w.take(10)
		ds = append(ds, group...)
		rand.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		for i, d := range group {
			wg.Go(func() { errs[len(ds)-10+i] = d.stream.Ack(context.Background(), d.Message) })
		}
		wg.Wait()
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Stream.Ack must accept each message once, in any order and from any goroutine: %v", err)
	}
	w.stop()
	if came := upToNew(t, h); len(came) > 0 {
		t.Errorf("an acknowledged message must not be delivered again: got %q", came)
	}
}

func testAckGap(t *testing.T, h Harness) {
	h.publish(t, numbered(10)...)
	w := start(t, h)
	ds := w.take(10)
	var unacked []delivery
	for i, d := range ds {
		if i%3 == 1 {
			unacked = append(unacked, d)
		} else {
			ack(t, d)
		}
	}
	w.stop()
	came := upToNew(t, h)
	for _, d := range unacked {
		if !slices.Contains(came, string(d.Body)) {
			t.Errorf("an acknowledgement must not reach beyond its own message: %q was not acknowledged and did not come again", d.Body)
		}
	}
	if h.Features.SingleAck && len(came) != len(unacked) {
		t.Errorf("an acknowledged message must not be delivered again: got %q, want %q", came, bodies(unacked))
	}
}

// upToNew publishes one more message and returns what comes before it.
func upToNew(t *testing.T, h Harness) []string {
	t.Helper()
	h.publish(t, text("new"))
	w := start(t, h)
	defer w.stop()
	var came []string
	for {
		d := w.next()
		if string(d.Body) == "new" {
			return came
		}
		came = append(came, string(d.Body))
	}
}

func testLateAck(t *testing.T, h Harness) {
	h.publish(t, numbered(4)...)
	w := start(t, h)
	old := w.take(4)
	h.disconnect(t)
	current := w.take(4)
	for _, d := range old {
		ctx, cancel := limited(t)
		if err := d.stream.Ack(ctx, d.Message); err == nil {
			t.Errorf("Stream.Ack must return an error once the stream has ended, see consumer.Stream: %s", d.Position)
		}
		cancel()
	}
	ack(t, current[0])
	w.stop()
	if again := upToNew(t, h); !slices.Equal(again, bodies(current[1:])) {
		t.Errorf("an Ack on a lost stream must acknowledge nothing of the next one: got %q, want %q", again, bodies(current[1:]))
	}
}

func testAckWhileStopping(t *testing.T, h Harness) {
	begun := make(chan delivery)
	h.publish(t, numbered(1)...)
	w := startWith(t, h, func(ctx context.Context, s consumer.Stream) error {
		ms, err := s.Next(ctx, 1)
		if err != nil {
			return endOf(ctx, s, err)
		}
		begun <- delivery{ms[0], s, ctx.Done()}
		<-ctx.Done()
		late, cancel := context.WithTimeout(context.Background(), Limit)
		defer cancel()
		return s.Ack(late, ms...)
	})
	d := receive(t, begun, "a message must be delivered")
	w.cancel()
	await(t, d.ended, "the context of serve must end when that of Run does, see consumer.Source")
	await(t, w.done, "Source.Run must return when every serve has, see consumer.Source")
	if w.err != nil {
		t.Fatalf("Stream.Ack must still accept, while the source stops, what serve has begun, see consumer.Stream; Run returned: %v", w.err)
	}
	if came := upToNew(t, h); len(came) > 0 {
		t.Errorf("what was acknowledged while the source stopped must not be delivered again: got %q", came)
	}
}

// testRelease applies to streams that implement consumer.Releaser.
func testRelease(t *testing.T, h Harness) {
	h.publish(t, numbered(6)...)
	w := start(t, h)
	ds := w.take(6)
	r, ok := ds[0].stream.(consumer.Releaser)
	if !ok {
		w.stop()
		return
	}
	released := []delivery{ds[1], ds[3], ds[4]}
	if err := r.Release(t.Context(), ds[1].Message, ds[3].Message, ds[4].Message); err != nil {
		t.Fatalf("Releaser.Release must accept what is not acknowledged: %v", err)
	}
	// Those around them are acknowledged, which must not reach the released.
	for _, d := range []delivery{ds[0], ds[2], ds[5]} {
		ack(t, d)
	}
	sameAgain(t, h, released, sorted(w.take(3)))
	// To acknowledge the old delivery must not settle the new one.
	_ = released[0].stream.Ack(t.Context(), released[0].Message)
	w.stop()
	w = start(t, h)
	sameAgain(t, h, released, sorted(w.take(3)))
	w.stop()
	if t.Failed() {
		t.Log("a released message must be delivered again, and be acknowledged only by its new delivery, see consumer.Releaser")
	}
}

func sorted(ds []delivery) []delivery {
	slices.SortFunc(ds, func(a, b delivery) int { return strings.Compare(string(a.Body), string(b.Body)) })
	return ds
}
