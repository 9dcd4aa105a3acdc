package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
	shunned time.Time    // until when only the leader is asked, since a replica has failed
	epoch   int32        // of the leader that wrote what is before the next fetch, or -1
	strange bool         // the last answer was "out of range", for an offset in range

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
			offset, err = p.outOfRange(ctx, offset)
		}
		if final := (*finalError)(nil); errors.As(err, &final) {
			return final.err
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if errors.Is(err, errHandedOn) {
				return nil // the stream ends when all before it is settled
			}
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
	at := place{topic: p.topic, id: p.id, partition: p.partition, replica: p.replica, newest: &p.newest, epoch: p.epoch}
	if time.Now().After(p.shunned) {
		at.rack = p.client.config.Rack
	}
	r, err := p.client.fetch(ctx, at, offset, p.client.config.FetchWait)
	if err == nil {
		err = r.err
	}
	if err != nil {
		return offset, p.failed(ctx, err)
	}
	if r.cut >= 0 {
		return p.cut(ctx, offset, r.cut)
	}
	p.strange = false
	if r.replica >= 0 && r.replica != p.replica {
		p.ask(r.replica)
	}
	p.note(r)
	bs, next, damage := r.batches(offset)
	if (len(bs) > 0 || damage != nil) && !r.byID {
		if err := p.same(ctx); err != nil {
			return offset, err
		}
	}
	return p.hand(ctx, bs, next, damage)
}

// hand hands batches on, and what is wrong with the one at next. A batch takes
// up its room only once it is decompressed, and is that only once there is room.
func (p *partition) hand(ctx context.Context, bs []*batch, next int64, damage error) (int64, error) {
	for _, b := range bs {
		if err := p.buffer.wait(ctx); err != nil {
			return b.from, err
		}
		if err := b.expand(p.client.config.MaxBatchBytes); err != nil {
			next, damage = b.from, err
			break
		}
		p.buffer.add(b)
		p.epoch = b.epoch
	}
	if damage == nil {
		return next, nil
	}
	damage = fmt.Errorf("the batch at offset %d: %w", next, damage)
	if p.replica >= 0 {
		return next, p.failed(ctx, damage)
	}
	if err := p.buffer.wait(ctx); err != nil {
		return next, err
	}
	p.buffer.add(&batch{base: next, last: next, from: next, broken: damage})
	return next, errHandedOn
}

// errHandedOn says that what cannot be read was handed on as such.
var errHandedOn = errors.New("what cannot be read was handed on")

// failed notes that a fetch has failed. It returns nil when the one to blame is
// a replica: for a while the leader is asked instead, and told of no rack, since
// else it would name the replica again.
func (p *partition) failed(ctx context.Context, err error) error {
	byReplica := p.replica >= 0 && ctx.Err() == nil
	p.ask(-1)
	if !byReplica {
		return err
	}
	p.shunned = time.Now().Add(shunning)
	p.log.shunned(p.name, err)
	return nil
}

// shunning is how long a replica is not asked again that has failed.
const shunning = time.Minute

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
	p.behind(p.end)
	p.end, p.high = r.watermark, r.watermark
	if !p.client.config.ReadUncommitted && r.stable >= 0 {
		p.end = min(p.end, r.stable)
	}
}
