package kafka

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ackafter/ackafter/consumer"
)

// testPartition is one that is assigned, without a client that could fetch.
func testPartition(t *testing.T, c Config) (*partition, *reporter) {
	c.Logger = slog.New(slog.DiscardHandler)
	c = c.withDefaults()
	log := newReporter(c)
	p := &partition{stream: newStream(c, "t", 0), client: &client{config: c}, log: log, replica: -1, epoch: -1, end: -1, high: -1}
	ended := make(chan struct{})
	p.ended, p.fail = ended, func(err error) {
		t.Logf("fails: %v", err)
		close(ended)
	}
	log.up(1, []*partition{p})
	return p, log
}

// fetched notes what a fetch has brought.
func (p *partition) brings(t *testing.T, at int64, values ...string) {
	t.Helper()
	end := at + int64(len(values))
	p.note(&fetched{watermark: end, stable: end})
	bs, next, err := (&fetched{records: data(at, values...).encode()}).batches(at)
	if err == nil {
		_, err = p.hand(t.Context(), bs, next, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A partition that was idle for long does not stand still when a message comes,
// but when the message stays there.
func TestStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		p, log := testPartition(t, Config{StallAfter: limit})
		wants := func(what string, healthy bool) {
			t.Helper()
			if err := log.health(limit); (err == nil) != healthy || err != nil && !strings.Contains(err.Error(), "stands still") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if h := p.health(); h.Position != -1 || h.Settled != -1 || h.Committed != -1 || h.HighWatermark != -1 || h.Lag != 0 || !h.Advanced.IsZero() {
			t.Errorf("before it has begun: %+v", h)
		}
		p.begin(offset{at: 0, epoch: -1}, 0)
		p.note(&fetched{})
		time.Sleep(10 * limit)
		wants("idle", true)
		var held []*consumer.Message
		take := func() {
			t.Helper()
			ms, err := p.Next(t.Context(), 10)
			if err != nil || len(ms) == 0 {
				t.Fatal(err)
			}
			held = append(held, ms...)
		}
		p.brings(t, 0, "a", "b")
		take()
		wants("a message after a long time", true)
		time.Sleep(limit / 2)
		p.brings(t, 2, "c") // which does not start the clock anew
		take()
		time.Sleep(limit/2 - time.Second)
		wants("nearly", true)
		time.Sleep(2 * time.Second)
		wants("still there", false)
		if err := p.Ack(t.Context(), held[0]); err != nil {
			t.Fatal(err)
		}
		wants("the first is settled", true)
		time.Sleep(limit + time.Second)
		wants("the second is not", false)
		if err := p.Ack(t.Context(), held[1:]...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * limit)
		wants("idle again", true)
		p.note(&fetched{watermark: 4, stable: 4})
		wants("another one", true)
	})
}
