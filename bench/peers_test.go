package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// The tests of this file do the same to Watermill (1.5.1, watermill-amqp 3.0.2)
// and to this library, and show what becomes of the messages. They fail when a
// newer version does it differently, and then docs/peers.md is to be changed.

var errAway = errors.New("the database is away for a moment")

// A handler fails once. The Deduplicator has marked the message before the
// handler ran, so that its redelivery looks like a duplicate, and is dropped.
func TestWatermillDeduplicatorDropsAMessageThatFailedOnce(t *testing.T) {
	once := func(handle peerHandler) peerHandler {
		var failed atomic.Bool
		return func(ctx context.Context, q querier) error {
			if failed.CompareAndSwap(false, true) {
				return errAway
			}
			return handle(ctx, q)
		}
	}
	t.Run("watermill", func(t *testing.T) {
		w := newPeerWorld(t, "m1")
		arrived := w.watermill(once(w.pay), (&middleware.Deduplicator{}).Middleware)
		arrived(2) // the first delivery, and the one after its failure
		w.requirePaid(0)
	})
	t.Run("ackafter", func(t *testing.T) {
		w := newPeerWorld(t, "m1")
		w.ours(once(w.pay), nil)
		w.requirePaid(10)
	})
}

// Two payments of the same amount to the same account are two messages with one
// body, which is what the Deduplicator looks at by default.
func TestWatermillDeduplicatorTakesEqualBodiesForOneMessage(t *testing.T) {
	t.Run("watermill", func(t *testing.T) {
		w := newPeerWorld(t, "m1", "m2")
		arrived := w.watermill(w.pay, (&middleware.Deduplicator{}).Middleware)
		arrived(2)
		w.requirePaid(10)
	})
	t.Run("ackafter", func(t *testing.T) {
		w := newPeerWorld(t, "m1", "m2")
		w.ours(w.pay, nil)
		w.requirePaid(20)
	})
}

// A worker is stopped while a handler waits for the database, whose context ends
// with it. The PoisonQueue takes that for a failure of the message.
func TestWatermillPoisonQueueTakesAHealthyMessageWhileClosing(t *testing.T) {
	waiting := func() (began chan struct{}, handle peerHandler) {
		began = make(chan struct{}, 1)
		return began, func(ctx context.Context, q querier) error {
			began <- struct{}{}
			_, err := q.Exec(ctx, "select pg_sleep(10)")
			return err
		}
	}
	t.Run("watermill", func(t *testing.T) {
		w := newPeerWorld(t, "m1")
		poison := &recorder{}
		poisoned, err := middleware.PoisonQueue(poison, "poison")
		if err != nil {
			t.Fatal(err)
		}
		began, waits := waiting()
		router, stop := w.router(waits, poisoned)
		w.wait(began)
		if err := router.Close(); err != nil {
			t.Fatal(err)
		}
		stop()
		if reasons := poison.reasons(); len(reasons) != 1 || !strings.Contains(reasons[0], "context canceled") {
			t.Errorf("the poison queue holds %q, and used to hold the message with the reason \"context canceled\"", reasons)
		}
	})
	t.Run("ackafter", func(t *testing.T) {
		w := newPeerWorld(t, "m1")
		began, waits := waiting()
		w.ours(waits, began)
		if n := w.count("select count(*) from $schema.failed_messages"); n != 0 {
			t.Errorf("%d messages are set aside", n)
		}
		w.ours(w.pay, nil) // the next worker gets it
		w.requirePaid(10)
	})
}
