package kafka

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/consumer"
)

// Source is one member of a consumer group. It implements consumer.Source,
// and Validator, Checker, HealthReporter and SystemNamer of the same package.
// It is safe for concurrent use, but only one Run at a time may be running.
type Source struct {
	config  Config
	invalid error // what is wrong with the configuration
	running atomic.Bool
	report  *reporter
}

func newSource(c Config) *Source {
	s := &Source{invalid: c.validate(), config: c.withDefaults()}
	s.report = newReporter(s.config)
	return s
}

// Validate returns every mistake in the configuration, joined, each naming
// its field.
func (s *Source) Validate() error { return s.invalid }

// System returns "kafka".
func (s *Source) System() string { return "kafka" }

// Health returns nil while this is a member of the group whose partitions can
// be read and do not stand still, be it idle; else an error that says why and
// since when.
func (s *Source) Health() error { return s.report.health(s.config.StallAfter) }

// Partitions returns where this member stands in the partitions that are
// assigned to it.
func (s *Source) Partitions() []PartitionHealth { return s.report.partitions() }

// Run is a member of the group until ctx ends. It returns nil after ctx ended,
// the error of serve when serve returned one, and an error when the group is
// forbidden or a partition cannot be read on. By then the member has left the
// group, and its connections are closed. When serve gives a partition up, by
// returning nil while it is assigned, the member joins the group anew, and
// whoever gets the partition begins at what is committed.
func (s *Source) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	if s.invalid != nil {
		return s.invalid
	}
	if !s.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer s.running.Store(false)
	if ctx.Err() != nil {
		return nil
	}
	s.report.set(errJoining)
	defer s.report.set(errNotRunning)
	c := connect(s.config)
	defer c.close()
	group, err := kafka.NewConsumerGroup(c.group())
	if err != nil {
		return err
	}
	m := &membership{source: s, client: c, group: group, serve: serve, known: newKnown()}
	defer m.leave()
	return m.run(ctx)
}

// membership is the time in the group: one generation after the other.
type membership struct {
	source *Source
	client *client
	group  *kafka.ConsumerGroup
	serve  func(context.Context, consumer.Stream) error
	known  *known
}

func (m *membership) run(ctx context.Context) error {
	c := m.client.config
	wait := backoff{min: c.BackoffMin, max: c.BackoffMax}
	m.watchOnce(ctx)
	for first := true; ctx.Err() == nil; {
		gen, err := m.group.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kafka.RebalanceInProgress):
			continue
		case err != nil && first && forbidden(err):
			return explain(c, err)
		case err != nil:
			m.source.report.down(explain(c, err))
			continue // the group waits by itself, BackoffMax long
		}
		first = false
		began := time.Now()
		g := m.generation(gen)
		g.start(ctx)
		<-g.drained
		if g.err != nil {
			return g.err
		}
		m.source.report.set(errJoining)
		if time.Since(began) > c.BackoffMax {
			wait.reset()
		} else if ctx.Err() == nil && len(g.partitions) == 0 {
			wait.wait(ctx) // else many an empty generation could pass in a second
		}
	}
	return nil
}

// leave tells the group, and waits until the client has ended.
func (m *membership) leave() {
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = m.group.Close() // it returns no error
	}()
	timer := time.NewTimer(m.client.config.CloseTimeout)
	defer timer.Stop()
	select {
	case <-left:
		return
	case <-timer.C:
	}
	m.client.sockets.close(m.client.config.CloseTimeout) // which ends what it waits for
	<-left
}
