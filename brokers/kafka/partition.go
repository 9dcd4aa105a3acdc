package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/consumer"
)

// partition is the work on one partition during one generation: a goroutine
// that fetches, and one that serves.
type partition struct {
	*stream
	client  *client
	commits *committer
	log     *reporter
	origins *origins
	replica int32        // the broker to ask instead of the leader, or -1
	newest  atomic.Int32 // the newest fetch that it knows; 0 when it is not known

	state sync.Mutex
	end   int64 // the offset after the last message that can be read; -1 at first
	high  int64 // the high watermark
}

// run works until ctx ends, serve returns or the partition cannot be read. It
// returns what serve returned, or why it gave up; errLeft when serve returned
// nil for no reason. The last offsets are not yet committed then.
func (p *partition) run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var once sync.Once
	var failed error
	p.ended, p.fail = ctx.Done(), func(err error) {
		once.Do(func() { failed = err })
		end()
	}
	var fetching sync.WaitGroup
	fetching.Go(func() {
		if err := p.fetchAll(ctx); err != nil {
			p.fail(err)
		}
	})
	err := serve(ctx, p.stream)
	if err == nil && ctx.Err() == nil {
		err = errLeft
	}
	end()
	fetching.Wait()
	p.close()
	p.log.done(p.name)
	return or(err, failed)
}

// fetchAll fetches until ctx ends. It returns an error when the partition
// cannot be read on.
func (p *partition) fetchAll(ctx context.Context) error {
	wait := backoff{min: p.client.config.BackoffMin, max: p.client.config.BackoffMax}
	offset, began := int64(-1), false
	for ctx.Err() == nil {
		var err error
		if began {
			offset, err = p.fetch(ctx, offset)
		} else if offset, err = p.start(ctx); err == nil {
			began = true
		}
		if misplaced(err) && p.client.remade(ctx, p.topic, p.id) {
			p.lose()
			return errRemade
		}
		if errors.Is(err, kafka.OffsetOutOfRange) {
			offset, err = p.reset(ctx, offset)
		}
		if final := (*finalError)(nil); errors.As(err, &final) {
			return final.err
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			p.log.failing(p.name, err)
			wait.wait(ctx)
			continue
		}
		p.log.working(p.name)
		wait.reset()
	}
	return nil
}

// misplaced tells whether a topic may be another one than it was.
func misplaced(err error) bool {
	return errors.Is(err, kafka.UnknownTopicID) || errors.Is(err, kafka.InconsistentTopicID) ||
		errors.Is(err, kafka.UnknownTopicOrPartition) || errors.Is(err, kafka.OffsetOutOfRange)
}

// fetch asks once, hands on what came, and returns where to go on.
func (p *partition) fetch(ctx context.Context, offset int64) (int64, error) {
	r, err := p.client.fetch(ctx, place{p.topic, p.id, p.partition, p.replica, &p.newest}, offset, p.client.config.FetchWait)
	if err != nil {
		p.ask(-1)
		return offset, err
	}
	if r.err != nil && p.replica >= 0 {
		p.ask(-1)
		return offset, nil
	}
	if r.err != nil {
		p.ask(-1)
		return offset, r.err
	}
	if r.replica >= 0 && r.replica != p.replica {
		p.ask(r.replica)
	}
	p.note(r)
	bs, next, err := r.batches(offset)
	if err != nil {
		return offset, err
	}
	if len(bs) > 0 && !r.byID {
		if err := p.same(ctx); err != nil {
			return offset, err
		}
	}
	for _, b := range bs {
		if err := p.buffer.push(ctx, b); err != nil {
			return offset, err
		}
	}
	return next, nil
}

// same returns an error unless the topic is still the same one. What was
// fetched by its name from a broker that knows ids may be another one's.
func (p *partition) same(ctx context.Context) error {
	if p.id == (topicID{}) {
		return nil
	}
	ids, err := p.client.ids(ctx, []string{p.topic})
	if err == nil && ids[p.topic] != p.id {
		err = fmt.Errorf("topic %q: %w", p.topic, kafka.UnknownTopicID)
	}
	return err
}

// ask chooses the broker: a replica, or the leader with -1. Another broker may
// know other versions.
func (p *partition) ask(replica int32) {
	p.replica = replica
	p.newest.Store(0)
}

// note keeps where the log ends.
func (p *partition) note(r *fetched) {
	p.state.Lock()
	defer p.state.Unlock()
	p.end, p.high = r.watermark, r.watermark
	if !p.client.config.ReadUncommitted && r.stable >= 0 {
		p.end = min(p.end, r.stable)
	}
}

// start finds out where to begin. What the group has not committed yet it
// commits at once: else a restart would look for the beginning again, and skip
// what was written or deleted meanwhile. A topic that was made again, of which
// this member or the group has read nothing, is read from its first message.
func (p *partition) start(ctx context.Context) (int64, error) {
	o, err := p.origins.of(ctx, p.topic, p.partition)
	if err != nil {
		return -1, err
	}
	p.identify(o.id)
	if o.at >= 0 && !o.other {
		p.begin(o.at, o.at)
		p.doubtful = o.at + int64(p.window)
		return o.at, nil
	}
	to, last, err := p.client.ends(ctx, p.topic, p.partition)
	if err != nil {
		return -1, err
	}
	switch {
	case o.other || p.origins.known.madeAgain(p.topic):
		p.log.remade(p.name, o.at, to)
	case p.client.config.Start == StartLast:
		to = last
	}
	return to, p.beginNew(to)
}

// beginNew begins at an offset that the group has not, and commits it.
func (p *partition) beginNew(to int64) error {
	p.begin(to, -1)
	if err := p.commits.flush(); err != nil && !p.has(to) {
		return err
	}
	return nil
}

// reset decides about an offset that the log does not hold.
func (p *partition) reset(ctx context.Context, offset int64) (int64, error) {
	if !p.untouched(offset) {
		// In the next generation it begins with what is committed, which may
		// be there, or not.
		return offset, &finalError{errOvertaken}
	}
	first, last, err := p.client.ends(ctx, p.topic, p.partition)
	if err != nil || offset >= first && offset <= last {
		return offset, err // it has come into range
	}
	policy, to := p.client.config.OutOfRange, first
	if policy == OutOfRangeFail {
		return offset, &finalError{fmt.Errorf("kafka: %s: the group %q has committed the offset %d, but the log holds %d to %d: %s; "+
			"set Config.OutOfRange, or set the group's offset (kafka-consumer-groups --reset-offsets)",
			p.name, p.client.config.Group, offset, first, last, outOfRangeCause(offset, first))}
	}
	if policy == OutOfRangeLast {
		to = last
	}
	p.log.skipped(p.name, offset, to, first, last)
	return to, p.beginNew(to)
}

func outOfRangeCause(offset, first int64) string {
	if offset < first {
		return "its retention has deleted messages that were not read"
	}
	return "the topic was deleted and created again, or a broker has lost messages"
}
