package kafka

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ackafter/ackafter/consumer"
)

// What cannot be read ends the stream, be it a record, a batch or a compressed
// one. What is before it is delivered and settled first: else a member that
// begins anew each time would never come beyond that.
func TestDamageComesLast(t *testing.T) {
	t.Parallel()
	flipped := data(1, "c", "d").encode()
	flipped[len(flipped)-2] ^= 1
	packed := data(1, "c", "d")
	packed.attributes = 1
	twice := data(0, "a", "b")
	twice.records[1].delta = 0
	for _, c := range []struct {
		name    string
		records []byte
		want    string // in the error
	}{
		{"a batch", append(data(0, "a").encode(), flipped...), "the batch at offset 1: its checksum"},
		{"a compressed batch", append(data(0, "a").encode(), packed.encode()...), "the batch at offset 1: decompress it (gzip)"},
		{"a record", twice.encode(), "the record at offset 1 or after it, in the batch at offsets 0 to 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testDamage(t, c.records, c.want) })
		})
	}
}

func testDamage(t *testing.T, records []byte, want string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, _ := testPartition(t, Config{})
	var failed error
	p.ended, p.fail = ctx.Done(), func(err error) {
		failed = err
		cancel()
	}
	p.begin(offset{at: 0, epoch: -1}, 0)
	bs, next, damage := (&fetched{records: records}).batches(0)
	if _, err := p.hand(ctx, bs, next, damage); err != nil && !errors.Is(err, errHandedOn) {
		t.Fatal(err)
	}
	before, err := p.Next(ctx, 10)
	if err != nil || len(before) != 1 || string(before[0].Body) != "a" {
		t.Fatalf("before it come %v, %v", before, err)
	}
	var after []*consumer.Message
	done := make(chan struct{})
	go func() {
		defer close(done)
		after, err = p.Next(t.Context(), 10)
	}()
	synctest.Wait()
	if failed != nil {
		t.Fatalf("what is before it is not settled: %v", failed)
	}
	if err := p.Ack(ctx, before...); err != nil {
		t.Fatal(err)
	}
	<-done
	if len(after) != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after it come %v, %v", after, err)
	}
	if !errors.Is(failed, ErrUnreadable) || !strings.Contains(failed.Error(), "t/0") || !strings.Contains(failed.Error(), want) {
		t.Errorf("the error is %v, want %q in it", failed, want)
	}
	if o, _ := p.due(); o.at != 1 {
		t.Errorf("%d would be committed, and the damage is at 1", o.at)
	}
}
