package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/consumer"
)

// Check connects once and looks the queue up, or declares it under
// Config.Declare. Its errors say what is wrong and what would help; one that
// may pass wraps consumer.ErrOutage. It consumes nothing, so it cannot tell
// whether consuming is permitted: Run does.
func (s *Source) Check(ctx context.Context, p consumer.Plan) error {
	if s.invalid != nil {
		return s.invalid
	}
	if err := s.checkPlan(p); err != nil {
		return err
	}
	l, err := s.connect(ctx, s.lookUp)
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		// A broker that went down just then refuses no second time.
		l, err = s.connect(ctx, s.lookUp)
	}
	if err != nil {
		return err
	}
	defer l.close(s.config.CloseTimeout)
	if s.dropsMessages(l.conn.Properties) {
		p.Warn(fmt.Sprintf("the queue %q has a delivery limit and no dead-letter exchange: RabbitMQ deletes a message that was delivered too often, without a trace; set Config.Declare.DeadLetterExchange, or a negative DeliveryLimit", s.config.Queue))
	}
	return nil
}

func (s *Source) lookUp(l *link) error {
	if s.config.Declare != nil {
		return s.config.Declare.declare(l.ch, s.config.Queue)
	}
	_, err := l.ch.QueueDeclarePassive(s.config.Queue, true, false, false, false, nil)
	return err
}

// checkPlan compares what the runner is going to do with the configuration.
func (s *Source) checkPlan(p consumer.Plan) error {
	if s.config.Prefetch < p.Workers {
		p.Warn(fmt.Sprintf("Config.Prefetch of the RabbitMQ source is %d: no more than that of the %d workers will ever be busy", s.config.Prefetch, p.Workers))
	}
	if n := p.Workers * p.MaxBatch; p.MaxBatch > 1 && s.config.Prefetch < n {
		p.Warn(fmt.Sprintf("Config.Prefetch of the RabbitMQ source is %d: batches will be smaller than MaxBatch, which takes %d for all workers, and twice that for no waits in between", s.config.Prefetch, n))
	}
	limit := s.config.ConsumerTimeout
	if limit > 0 && p.HandlerTimeout >= limit {
		return fmt.Errorf("rabbitmq: the handler may take %v, but the broker closes the channel when a message is not acknowledged for %v: lower the runner's HandlerTimeout, or raise the broker's consumer_timeout and then Config.ConsumerTimeout", p.HandlerTimeout, limit)
	}
	return nil
}

// dropsMessages tells whether the declared queue is known to delete messages
// at a delivery limit.
func (s *Source) dropsMessages(server amqp.Table) bool {
	if s.config.Declare == nil {
		return false
	}
	args := s.config.Declare.arguments()
	if args[amqp.QueueTypeArg] != amqp.QueueTypeQuorum || args[argDeadLetterExchange] != nil {
		return false
	}
	limit, set := args[argDeliveryLimit]
	if !set {
		return majorVersion(server) >= 4 // they have a limit of 20
	}
	return !strings.HasPrefix(fmt.Sprint(limit), "-")
}

// majorVersion returns the first number of the broker's version, or 0.
func majorVersion(server amqp.Table) int {
	version, _ := server["version"].(string)
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}
