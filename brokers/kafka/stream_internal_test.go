package kafka

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/ackafter/ackafter/consumer"
)

// Next waits since the window is full. It goes on when the head is settled and
// committed, though no more is fetched.
func TestFullWindowIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newStream(Config{Window: 2}.withDefaults(), "t", 0)
		s.ended = make(chan struct{})
		s.begin(offset{}, 0)
		bs, _, err := (&fetched{records: data(0, "a", "b", "c").encode()}).batches(0)
		if err != nil {
			t.Fatal("there is no batch", err)
		}
		s.buffer.add(bs[0])
		first, err := s.Next(ctx, 10)
		if err != nil || len(first) != 2 {
			t.Fatalf("got %d messages, %v; want the window", len(first), err)
		}
		var second []*consumer.Message
		done := make(chan struct{})
		go func() {
			defer close(done)
			second, err = s.Next(ctx, 10)
		}()
		synctest.Wait()
		if err := s.Ack(ctx, first[1]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the window is still full")
		default:
		}
		if err := s.Ack(ctx, first[0]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("nothing is committed: a crash would repeat more than the window")
		case <-s.hurry: // it asks for a commit
		default:
			t.Fatal("nobody is asked to commit")
		}
		o, is := s.due()
		if !is || o.at != 2 {
			t.Fatalf("due is %+v, %v", o, is)
		}
		s.commit(o)
		synctest.Wait()
		cancel()
		<-done
		if err != nil || len(second) != 1 || string(second[0].Body) != "c" {
			t.Errorf("got %d messages, %v; want c", len(second), err)
		}
	})
}

// The buffer takes no more than its limit and one batch.
func TestBufferIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newBuffer(2 * batchHeader)
		pushed := 0
		go func() {
			for pushed < 10 && f.wait(t.Context()) == nil {
				f.add(&batch{})
				pushed++
			}
		}()
		for _, want := range []int{2, 3, 4} {
			synctest.Wait()
			if pushed != want {
				t.Fatalf("%d batches were pushed, want %d", pushed, want)
			}
			if f.pop() == nil {
				t.Fatal("the buffer is empty")
			}
		}
	})
}
