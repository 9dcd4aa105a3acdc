package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
	assign  int64 // what the group has committed, or negative
	replica int32 // the broker to ask instead of the leader, or -1

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
	offset, began := p.assign, false
	for ctx.Err() == nil {
		var err error
		if began {
			offset, err = p.fetch(ctx, offset)
		} else if offset, err = p.start(ctx); err == nil {
			began = true
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

// fetch asks once, hands on what came, and returns where to go on.
func (p *partition) fetch(ctx context.Context, offset int64) (int64, error) {
	r, err := p.client.fetch(ctx, p.topic, p.partition, offset, p.replica)
	if err != nil {
		p.replica = -1
		return offset, err
	}
	if r.err != nil && p.replica >= 0 {
		p.replica = -1 // ask the leader
		return offset, nil
	}
	if r.err != nil {
		return offset, r.err
	}
	if r.replica >= 0 {
		p.replica = r.replica
	}
	p.note(r)
	bs, next, err := r.batches(offset)
	if err != nil {
		return offset, err
	}
	for _, b := range bs {
		if err := p.buffer.push(ctx, b); err != nil {
			return offset, err
		}
	}
	return next, nil
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
// what was written or deleted meanwhile.
func (p *partition) start(ctx context.Context) (int64, error) {
	if p.assign >= 0 {
		p.begin(p.assign, p.assign)
		return p.assign, nil
	}
	first, last, err := p.client.ends(ctx, p.topic, p.partition)
	if err != nil {
		return p.assign, err
	}
	if p.client.config.Start == StartLast {
		first = last
	}
	p.begin(first, -1)
	return first, p.commits.flush()
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
	p.begin(to, -1)
	return to, p.commits.flush()
}

func outOfRangeCause(offset, first int64) string {
	if offset < first {
		return "its retention has deleted messages that were not read"
	}
	return "the topic was deleted and created again, or a broker has lost messages"
}
