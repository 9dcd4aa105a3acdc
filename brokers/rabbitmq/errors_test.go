package rabbitmq

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The broker notices a consumer_timeout once a minute at best, too long for a
// test; these are its words.
func TestExplainConsumerTimeout(t *testing.T) {
	s := Queue("amqp://localhost", "orders")
	err := s.explainLoss(&amqp.Error{Code: amqp.PreconditionFailed, Server: true,
		Reason: "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 2000 ms. This timeout value can be configured, see consumers doc guide to learn more"})
	if !strings.Contains(err.Error(), "consumer_timeout") || !strings.Contains(err.Error(), "2000 ms") {
		t.Error(err)
	}
}
