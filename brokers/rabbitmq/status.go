package rabbitmq

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// status knows whether the queue is consumed, and logs when that changes.
type status struct {
	queue, addr string
	log         *slog.Logger

	mu    sync.Mutex
	cause error     // why the queue is not consumed; nil when it is
	since time.Time // since when it is not
	said  bool      // the log says that it is not
}

func newStatus(c Config, uri amqp.URI) *status {
	log := c.Logger
	if log == nil {
		log = slog.Default()
	}
	return &status{
		queue: c.Queue,
		addr:  address(uri),
		cause: errNotRunning,
		log: log.With("messaging.system", "rabbitmq", "messaging.destination.name", c.Queue,
			"server.address", uri.Host, "server.port", uri.Port),
	}
}

func (s *status) health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil || s.cause == errNotRunning {
		return s.cause
	}
	return fmt.Errorf("%w (queue %q at %s is not consumed since %s)", s.cause, s.queue, s.addr, s.since.Format(time.RFC3339))
}

func (s *status) begin() { s.set(errConnecting) }
func (s *status) stop()  { s.set(errNotRunning) }

func (s *status) set(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cause, s.since, s.said = cause, time.Now(), false
}

// up notes that the queue is consumed.
func (s *status) up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said {
		s.log.Info("consuming the queue again", "after", time.Since(s.since))
	}
	s.cause, s.said = nil, false
}

// down notes that the queue is not consumed, or still not.
func (s *status) down(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.since = time.Now()
	}
	s.cause = cause
	if !s.said {
		s.log.Warn("not consuming the queue; reconnecting", "error", cause)
		s.said = true
	}
}
