package rabbitmq

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/consumer"
)

// Source reads one queue. It implements consumer.Source, and Validator,
// Checker, HealthReporter and SystemNamer of the same package. It is safe for
// concurrent use, but only one Run at a time may be running.
type Source struct {
	config  Config
	uri     amqp.URI
	invalid error // what is wrong with the configuration
	running atomic.Bool
	status  *status
}

func newSource(c Config) *Source {
	uri, err := parseURL(c.URL)
	s := &Source{uri: uri, invalid: errors.Join(err, c.validate())}
	s.config = c.withDefaults()
	s.status = newStatus(s.config, uri)
	return s
}

// Validate returns every mistake in the configuration, joined, each naming
// its field.
func (s *Source) Validate() error {
	if s.status == nil {
		return errors.New("rabbitmq: make the source with Queue or New")
	}
	return s.invalid
}

// System returns "rabbitmq".
func (s *Source) System() string { return "rabbitmq" }

// Health returns nil while the queue is consumed; else an error that says
// since when it is not, and why.
func (s *Source) Health() error { return s.status.health() }

// Run consumes the queue until ctx ends, one stream after the other, and
// reconnects with backoff whenever a stream is lost. It returns nil after ctx
// ended, the error of serve when serve returned one, and an error when the
// first subscription is forbidden. The connection is closed by then.
func (s *Source) Run(ctx context.Context, serve func(context.Context, consumer.Stream) error) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if !s.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer s.running.Store(false)
	s.status.begin()
	defer s.status.stop()
	wait := backoff{min: s.config.BackoffMin, max: s.config.BackoffMax}
	for first := true; ctx.Err() == nil; {
		l, err := s.connect(ctx, func(l *link) error { return l.consume(s.config) })
		if err != nil && first && forbidden(err) {
			return err
		}
		if err == nil {
			first = false
			s.status.up()
			began := time.Now()
			lost, failed := s.epoch(ctx, l, serve)
			if failed != nil {
				return failed
			}
			if time.Since(began) > s.config.BackoffMax {
				wait.reset()
			}
			err = lost
		}
		if ctx.Err() == nil {
			s.status.down(err)
			wait.wait(ctx)
		}
	}
	return nil
}

// epoch serves one stream on l until it is lost, ctx ends or serve returns,
// and closes l. It returns why the stream was lost and what serve returned.
func (s *Source) epoch(ctx context.Context, l *link, serve func(context.Context, consumer.Stream) error) (lost, failed error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	st := newStream(s.config, l.ch)
	pumped, written, served := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { defer close(pumped); st.pump(l.deliveries) }()
	go func() { defer close(written); st.writeAcks() }()
	go func() { defer close(served); failed = serve(ctx, st) }()

	select {
	case <-ctx.Done():
	case <-served:
		if failed == nil {
			lost = errLeft
		}
	case <-pumped:
		lost = l.reason(s)
	}
	if lost != nil && ctx.Err() == nil {
		s.status.down(lost)
	}
	end()
	st.end()
	if s.config.Key != nil {
		// With an order to keep, nobody else may get the queue before what has
		// begun is finished: a single active consumer would be followed at once.
		<-served
	}
	select {
	case <-pumped:
	default:
		l.cancel(s.config.CloseTimeout)
		<-pumped
	}
	st.handBack()
	<-served
	st.close()
	<-written
	l.close(s.config.CloseTimeout)
	if failed == nil {
		failed = st.failure()
	}
	return lost, failed
}
