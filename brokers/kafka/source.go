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
// It is safe for concurrent use, but only one Run at a time may be running. New
// and Group make one; the zero Source is invalid.
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
func (s *Source) Validate() error {
	if s.report == nil {
		return errZero
	}
	return s.invalid
}

// System returns "kafka".
func (s *Source) System() string { return "kafka" }

// Health returns nil while this is a member of the group whose partitions can
// be read and do not stand still, be it idle; else an error that says why and
// since when.
func (s *Source) Health() error {
	if s.report == nil {
		return errZero
	}
	return s.report.health(s.config.StallAfter)
}

// Partitions returns where this member stands in the partitions that are
// assigned to it, by topic and number. It is empty while there are none.
func (s *Source) Partitions() []PartitionHealth {
	if s.report == nil {
		return nil
	}
	return s.report.partitions()
}

// Run is a member of the group until ctx ends. It returns nil after ctx ended,
// the error of serve when serve returned one, and an error when the group is
// forbidden or a partition cannot be read on, such as ErrOffsetOutOfRange and
// ErrUnreadable: what comes before in the partition is settled by then. The
// member has then left the group, and its connections are closed. When serve gives a partition up, by
// returning nil while it is assigned, the member joins the group anew, and
// whoever gets the partition begins at what is committed.
func (s *Source) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if !s.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer s.running.Store(false)
	if ctx.Err() != nil {
		return nil
	}
	s.report.set(errJoining)
	defer s.report.set(errNotRunning)
	c := connect(s.config)
	group, err := kafka.NewConsumerGroup(c.group())
	if err != nil {
		c.close()
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
			wait.wait(ctx) // kafka-go tries once meanwhile, and then waits for Next
			continue
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
		}
		if g.again.Load() || len(g.partitions) == 0 {
			wait.wait(ctx) // else many such generations could pass in a second
		}
	}
	return nil
}

// leave tells the group, closes the connections, and waits until the client has
// ended: CloseTimeout in all, of which a quarter is for what comes after the
// farewell.
func (m *membership) leave() {
	limit := m.client.config.CloseTimeout
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = m.group.Close() // it returns no error
	}()
	farewell := time.NewTimer(limit - limit/4)
	defer farewell.Stop()
	select {
	case <-left:
	case <-farewell.C:
	}
	m.client.closeWithin(ctx) // which ends what the farewell waits for
	select {
	case <-left:
	case <-ctx.Done():
		m.source.report.log.Warn("the client does not end within Config.CloseTimeout; its goroutines are left behind")
	}
}
