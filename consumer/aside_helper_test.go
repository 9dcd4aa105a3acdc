package consumer_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ackafter/ackafter/consumer"
)

// Where an asideInbox can be made to fail besides.
const (
	atAside stage = "set aside" // before it takes effect
	atTake  stage = "take"      // before a message that is due
	atStore stage = "store"     // what became of it
)

// asideInbox is a memInbox that can set messages aside.
type asideInbox struct {
	*memInbox
	aside []*asideMessage // guarded by mu of memInbox
}

type asideMessage struct {
	consumer.Failure
	due   time.Time // zero for good
	taken bool
}

func (a *asideMessage) store(f consumer.Failure) {
	a.Failure, a.due, a.taken = f, time.Time{}, false
	if f.RetryIn >= 0 {
		a.due = time.Now().Add(f.RetryIn)
	}
}

// onAside runs the test with an inbox that can set messages aside.
func onAside(t *testing.T, test func(t *testing.T, f *fixture, in *asideInbox)) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		in := &asideInbox{memInbox: f.inbox}
		f.cfg.Inbox = in
		test(t, f, in)
	})
}

// SetAside implements consumer.FailureInbox.
func (in *asideInbox) SetAside(ctx context.Context, subscriber string, f consumer.Failure) (consumer.Verdict, error) {
	if err := in.faultAt(atAside, f.Message); err != nil {
		return 0, err
	}
	c, err := in.claim(ctx, subscriber, f.Message)
	if err != nil {
		return 0, err
	}
	if c.verdict != 0 {
		return c.verdict, nil
	}
	m := *f.Message
	f.Message = &m
	a := &asideMessage{}
	a.store(f)
	in.mu.Lock()
	in.aside = append(in.aside, a)
	in.mu.Unlock()
	in.release(c, true)
	return consumer.SetAside, nil
}

// take returns the message that is due for the longest time, or nil.
func (in *asideInbox) take() *asideMessage {
	in.mu.Lock()
	defer in.mu.Unlock()
	var first *asideMessage
	for _, a := range in.aside {
		due := !a.taken && !a.due.IsZero() && !a.due.After(time.Now())
		if due && (first == nil || a.due.Before(first.due)) {
			first = a
		}
	}
	if first != nil {
		first.taken = true
	}
	return first
}

// RetryDue implements consumer.FailureInbox.
func (in *asideInbox) RetryDue(ctx context.Context, _ string, apply func(context.Context, *Tx, consumer.Failure) error,
	failed func(*consumer.Failure, error) consumer.Disposition) (*consumer.Failure, error) {
	if err := in.faultAt(atTake, nil); err != nil {
		return nil, err
	}
	a := in.take()
	if a == nil {
		return nil, nil
	}
	f, m := a.Failure, *a.Message
	m.Attempt = f.Attempts + 1
	f.Message = &m
	tx := &Tx{in: in.memInbox, m: &m}
	err := apply(ctx, tx, f)
	effects := tx.end()
	if err == nil {
		err = in.faultAt(atCommit, &m)
	}
	if err == nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.effects = append(in.effects, effects...)
		in.aside = slices.DeleteFunc(in.aside, func(other *asideMessage) bool { return other == a })
		return &f, nil
	}
	disposition := failed(&f, err)
	stored := in.faultAt(atStore, &m)
	in.mu.Lock()
	defer in.mu.Unlock()
	a.taken = false
	if stored != nil {
		return &f, stored
	}
	switch disposition {
	case consumer.Stored:
		a.store(f)
	case consumer.Discarded:
		in.aside = slices.DeleteFunc(in.aside, func(other *asideMessage) bool { return other == a })
		delete(in.rows, "billing\x00"+m.ID)
	}
	return &f, err
}

// setAside returns what is set aside.
func (in *asideInbox) setAside() []consumer.Failure {
	in.mu.Lock()
	defer in.mu.Unlock()
	var all []consumer.Failure
	for _, a := range in.aside {
		all = append(all, a.Failure)
	}
	return all
}
