package kafka

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go"
)

// start finds out where to begin. What the group has not committed yet it
// commits at once: else a restart would look for the beginning again, and skip
// what was written or deleted meanwhile.
func (p *partition) start(ctx context.Context) (int64, error) {
	o, err := p.origins.of(ctx, p.topic, p.partition)
	if err != nil {
		return -1, err
	}
	p.identify(o.mark)
	again := p.origins.known.madeAgain(p.topic)
	switch {
	case o.at >= 0 && o.other == "":
		p.epoch = o.epoch
		p.begin(o, o.at)
		return o.at, nil
	case o.other != "" && !again:
		return p.otherTopic(ctx, o)
	}
	first, last, err := p.client.ends(ctx, p.topic, p.partition)
	if err != nil {
		return -1, err
	}
	to := first
	switch {
	case again:
		p.log.remade(p.name, o.at, first)
	case p.client.config.Start == StartLast && !o.added:
		to = p.origins.known.last(p.name, o.mark.id, last)
	}
	return to, p.beginNew(to)
}

// beginNew begins at an offset that the group has not, and commits it.
func (p *partition) beginNew(to int64) error {
	p.epoch = -1
	p.begin(offset{at: to, epoch: -1}, -1)
	if err := p.commits.flush(); err != nil && !p.has(to) {
		return err
	}
	return nil
}

// outOfRange decides about an offset for which the broker has nothing.
func (p *partition) outOfRange(ctx context.Context, offset int64) (int64, error) {
	if !p.untouched(offset) {
		// In the next generation it begins with what is committed, which may
		// be there, or not.
		return offset, &finalError{errOvertaken}
	}
	first, last, err := p.client.ends(ctx, p.topic, p.partition)
	if err != nil {
		return offset, err
	}
	if offset >= first && offset <= last {
		if p.strange && p.epoch >= 0 {
			// Its leader's epoch is not known to the broker.
			return p.decide(offset, offset, first, last, "but the log does not know what was before it: "+truncated)
		}
		p.strange = true
		return offset, kafka.OffsetOutOfRange // it has come into range, probably
	}
	cause := "the topic was deleted and created again, or a broker has lost messages"
	if offset < first {
		cause = "its retention has deleted messages that were not read"
	}
	return p.decide(offset, first, first, last, fmt.Sprintf("but the log holds %d to %d: %s", first, last, cause))
}

// cut decides about an offset beyond the place up to which the log is still what
// was read. The broker knows that by the leaders' epochs.
func (p *partition) cut(ctx context.Context, offset, at int64) (int64, error) {
	switch {
	case at >= offset:
		p.epoch = -1 // the log has the same up to here
		return offset, nil
	case p.replica >= 0:
		return offset, p.failed(ctx, fmt.Errorf("its log differs from offset %d on", at))
	case !p.untouched(offset):
		return offset, &finalError{errOvertaken}
	}
	first, last, err := p.client.ends(ctx, p.topic, p.partition)
	if err != nil {
		return offset, err
	}
	return p.decide(offset, max(at, first), first, last, fmt.Sprintf("but the log is another one from %d on: %s", at, truncated))
}

const truncated = "a broker has lost messages, and others may have been written in their place (unclean leader election?)"

// otherTopic decides about an offset that was committed for another topic of the
// name.
func (p *partition) otherTopic(ctx context.Context, o offset) (int64, error) {
	first, last, err := p.client.ends(ctx, p.topic, p.partition)
	if err != nil {
		return -1, err
	}
	return p.decide(o.at, first, first, last, fmt.Sprintf("but for a topic with the id %s, and this one has the id %s: "+
		"the topic was deleted and created again, or the offset was copied from another cluster "+
		"(to use it as it is: kafka-consumer-groups --reset-offsets --to-current)", o.other, o.mark.id))
}

// decide does what Config.OutOfRange says about a committed offset that cannot
// be used: with OutOfRangeFirst it goes on at oldest.
func (p *partition) decide(offset, oldest, first, last int64, why string) (int64, error) {
	to, c := oldest, p.client.config
	switch c.OutOfRange {
	case OutOfRangeFail:
		return offset, &finalError{fmt.Errorf("kafka: %s: %w: the group %q has committed the offset %d, %s; "+
			"set Config.OutOfRange, or set the group's offset (kafka-consumer-groups --reset-offsets)",
			p.name, ErrOffsetOutOfRange, c.Group, offset, why)}
	case OutOfRangeLast:
		to = last
	}
	p.log.skipped(p.name, offset, to, first, last, why)
	return to, p.beginNew(to)
}
