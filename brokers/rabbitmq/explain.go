package rabbitmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// explainOpen says why there is no connection, and what would help. cause is
// not nil when ctx ended, which closed the socket under the client.
func (s *Source) explainOpen(cause, err error) error {
	addr := address(s.uri)
	if unreachable := (*unreachableError)(nil); errors.As(err, &unreachable) {
		return outage(err, "cannot reach %s: %v (is the broker running there, and is the host of Config.URL right?)", addr, err)
	}
	if cause != nil {
		return outage(errors.Join(cause, err), "%s does not answer as an AMQP broker: %v", addr, cause)
	}
	if e := explainTLS(addr, err); e != nil {
		return e
	}
	var answer *amqp.Error
	if !errors.As(err, &answer) {
		return outage(err, "the connection to %s broke while it was opened: %v", addr, err)
	}
	switch {
	case errors.Is(err, amqp.ErrSASL):
		return fmt.Errorf("rabbitmq: %s accepts none of the SASL mechanisms of Config.AMQP.SASL or of auth_mechanism in Config.URL: %w", addr, err)
	case answer.Code == amqp.AccessRefused && !errors.Is(err, amqp.ErrVhost):
		return s.explainLogin(answer)
	case answer.Code == amqp.NotAllowed && !passes(answer.Reason):
		return fmt.Errorf("rabbitmq: %s refuses the vhost %q to the user %q: %w: create the vhost (rabbitmqctl add_vhost), permit it (rabbitmqctl set_permissions), or correct the path of Config.URL", addr, s.vhost(), s.user(), answer)
	case !answer.Server && notAMQP(answer.Reason):
		return fmt.Errorf("rabbitmq: %s does not speak plain AMQP 0-9-1: is TLS missing? Then Config.URL must begin with amqps://, and the port is usually 5671; the management interface (15672) is no AMQP port either: %w", addr, err)
	}
	return outage(err, "the connection to %s was closed while it was opened: %s (if this stays: is TLS missing in Config.URL?)", addr, answer.Reason)
}

func explainTLS(addr string, err error) error {
	if header := (tls.RecordHeaderError{}); errors.As(err, &header) {
		return fmt.Errorf("rabbitmq: %s does not speak TLS: use amqp:// in Config.URL, or the broker's TLS port, usually 5671: %w", addr, err)
	}
	if verification := (*tls.CertificateVerificationError)(nil); errors.As(err, &verification) {
		return fmt.Errorf("rabbitmq: the certificate of %s is not trusted: set RootCAs or ServerName in Config.AMQP.TLSClientConfig, or cacertfile in Config.URL: %w", addr, err)
	}
	if alert := tls.AlertError(0); errors.As(err, &alert) {
		return fmt.Errorf("rabbitmq: %s refuses the TLS handshake (does it want a client certificate?): %w", addr, err)
	}
	return nil
}

func (s *Source) explainLogin(answer *amqp.Error) error {
	text := fmt.Sprintf("rabbitmq: %s refuses the user %q: wrong user or password in Config.URL or Config.AMQP.SASL, or a user that may not log in from here (guest may only from the broker's own machine): %v", address(s.uri), s.user(), answer)
	if answer.Server {
		return errors.New(text)
	}
	return &refusedError{text}
}

// explainChannel says why the queue cannot be used, and what would help.
func (s *Source) explainChannel(cause, err error) error {
	queue, vhost := s.config.Queue, s.vhost()
	if cause != nil {
		return outage(errors.Join(cause, err), "%s does not answer about the queue %q: %v", address(s.uri), queue, cause)
	}
	var answer *amqp.Error
	if !errors.As(err, &answer) || passes(answer.Reason) {
		return outage(err, "the queue %q in vhost %q cannot be used now: %v", queue, vhost, err)
	}
	switch answer.Code {
	case amqp.NotFound:
		if strings.Contains(answer.Reason, "no exchange") {
			return fmt.Errorf("rabbitmq: an exchange of Config.Declare.Bindings does not exist in vhost %q: create it first: %w", vhost, err)
		}
		return fmt.Errorf("rabbitmq: the queue %q does not exist in vhost %q: create it, or set Config.Declare to have it declared: %w", queue, vhost, err)
	case amqp.PreconditionFailed:
		return fmt.Errorf("rabbitmq: the queue %q exists in vhost %q, but not as Config.Declare says: make them equal, set Config.Declare to nil, or delete the queue: %w", queue, vhost, err)
	case amqp.AccessRefused:
		if exclusivelyUsed(answer) {
			return fmt.Errorf("rabbitmq: the queue %q in vhost %q has a consumer already, and one of the two wants it exclusively: %w", queue, vhost, err)
		}
		return fmt.Errorf("rabbitmq: the user %q may not use the queue %q in vhost %q: grant it (rabbitmqctl set_permissions): read to consume, configure as well for Config.Declare: %w", s.user(), queue, vhost, err)
	case amqp.ResourceLocked:
		return fmt.Errorf("rabbitmq: the queue %q in vhost %q belongs to another connection, which declared it exclusive: declare it without exclusive, or choose another queue: %w", queue, vhost, err)
	}
	return outage(err, "the queue %q in vhost %q cannot be used: %v", queue, vhost, err)
}

// explainLoss says why a stream has ended.
func (s *Source) explainLoss(err *amqp.Error) error {
	if err.Code == amqp.PreconditionFailed && strings.Contains(err.Reason, "timed out") {
		return fmt.Errorf("rabbitmq: a message was not acknowledged within the broker's consumer_timeout: lower Config.Prefetch or the handler's time limit: %w", err)
	}
	if !err.Server {
		return outage(err, "the connection was lost: %s", err.Reason)
	}
	return fmt.Errorf("rabbitmq: the broker has closed the channel or the connection: %w", err)
}

// notAMQP tells whether the first bytes from the peer were not AMQP: a TLS
// alert, or a web server's complaint.
func notAMQP(reason string) bool {
	return strings.Contains(reason, amqp.ErrFrame.Reason) || strings.Contains(reason, amqp.ErrFrameTooLarge.Reason)
}

// passes tells whether the broker's words describe something that can pass by
// itself, under a code which does not say so.
func passes(reason string) bool {
	for _, words := range []string{"is down", "down or inaccessible", "is reached", "limit reached"} {
		if strings.Contains(reason, words) {
			return true
		}
	}
	return false
}

// exclusivelyUsed tells a queue in use, which passes, from a permission that
// is missing.
func exclusivelyUsed(err *amqp.Error) bool {
	return strings.Contains(err.Reason, "exclusive use")
}

// forbidden tells whether the broker does not permit to consume.
func forbidden(err error) bool {
	var refused *consumeError
	var answer *amqp.Error
	return errors.As(err, &refused) && errors.As(err, &answer) &&
		answer.Code == amqp.AccessRefused && !exclusivelyUsed(answer)
}

// vhost and user are those of the login, for messages.
func (s *Source) vhost() string { return or(s.config.AMQP.Vhost, s.uri.Vhost) }

func (s *Source) user() string {
	for _, auth := range s.config.AMQP.SASL {
		switch a := auth.(type) {
		case *amqp.PlainAuth:
			return a.Username
		case *amqp.AMQPlainAuth:
			return a.Username
		default:
			return "(by " + auth.Mechanism() + ")"
		}
	}
	return s.uri.Username
}
