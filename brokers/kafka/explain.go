package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/segmentio/kafka-go"
)

// explain says why something has failed, and what would help. What may pass
// wraps consumer.ErrOutage.
func explain(c Config, err error) error {
	if err == nil {
		return nil
	}
	at := strings.Join(c.Brokers, ", ")
	if e := explainTLS(at, err); e != nil {
		return e
	}
	var code kafka.Error
	if errors.As(err, &code) {
		return explainCode(c, code, err)
	}
	if unreachable := (*unreachableError)(nil); errors.As(err, &unreachable) {
		return outage(err, "cannot reach a broker: %v (is it running, is Config.Brokers right, and can the address that the brokers advertise be reached from here?)", err)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		hint := "is TLS missing (Config.TLS), or SASL (Config.SASL)?"
		if c.SASL != nil {
			hint = "is TLS missing (Config.TLS), or are the user and the password of Config.SASL wrong?"
		}
		return outage(err, "%s has closed the connection while it was opened: %s %v", at, hint, err)
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return outage(err, "%s does not answer as a Kafka broker (Config.DialTimeout, Config.RequestTimeout): %v", at, err)
	default:
		return outage(err, "%s: %v", at, err)
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// explainTLS explains the errors of TLS, which do not pass by themselves.
func explainTLS(at string, err error) error {
	var (
		header    tls.RecordHeaderError
		verify    *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		alert     tls.AlertError
	)
	switch {
	case errors.As(err, &header):
		return fmt.Errorf("kafka: %s does not speak TLS: leave Config.TLS nil, or use the brokers' TLS port: %w", at, err)
	case errors.As(err, &authority), errors.As(err, &verify) && !errors.As(err, &host):
		return fmt.Errorf("kafka: the certificate of %s is not trusted: set RootCAs of Config.TLS: %w", at, err)
	case errors.As(err, &host):
		return fmt.Errorf("kafka: the certificate of %s is for another host: use its name in Config.Brokers, or set ServerName of Config.TLS: %w", at, err)
	case errors.As(err, &alert):
		return fmt.Errorf("kafka: %s refuses the TLS handshake: does it want a client's certificate (Config.TLS)? %w", at, err)
	case strings.Contains(err.Error(), "broker appears to be expecting TLS"):
		return fmt.Errorf("kafka: %s expects TLS: set Config.TLS: %w", at, err)
	}
	return nil
}

// explainCode explains what a broker has answered.
func explainCode(c Config, code kafka.Error, err error) error {
	switch code {
	case kafka.UnknownTopicOrPartition:
		return fmt.Errorf("kafka: %w: create it, or correct Config.Topics; topics that the brokers hide for lack of the right Describe look the same", err)
	case kafka.TopicAuthorizationFailed:
		return fmt.Errorf("kafka: %w: grant Read and Describe on the topic", err)
	case kafka.GroupAuthorizationFailed:
		return fmt.Errorf("kafka: group %q: %w: grant Read on the group", c.Group, err)
	case kafka.SASLAuthenticationFailed:
		return fmt.Errorf("kafka: the brokers do not accept the user or the password of Config.SASL: %w", err)
	case kafka.UnsupportedSASLMechanism:
		return fmt.Errorf("kafka: the brokers do not accept the mechanism of Config.SASL: %w", err)
	case kafka.IllegalSASLState:
		return fmt.Errorf("kafka: the brokers expect no SASL here, or another one: Config.SASL: %w", err)
	case kafka.InvalidSessionTimeout:
		return fmt.Errorf("kafka: Config.SessionTimeout is %v, which the brokers do not allow (group.min.session.timeout.ms, group.max.session.timeout.ms): %w", c.SessionTimeout, err)
	case kafka.InconsistentGroupProtocol:
		return fmt.Errorf("kafka: the members of the group %q divide the partitions by another protocol (the new one of Kafka 4, cooperative-sticky): this one knows range and roundrobin: %w", c.Group, err)
	case kafka.InvalidGroupId, kafka.InvalidTopic:
		return fmt.Errorf("kafka: %w", err)
	}
	return outage(err, "%v", err)
}

// forbidden tells whether err will not pass by itself.
func forbidden(err error) bool {
	for _, code := range []kafka.Error{
		kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed, kafka.SASLAuthenticationFailed,
		kafka.UnsupportedSASLMechanism, kafka.InvalidSessionTimeout, kafka.InconsistentGroupProtocol, kafka.InvalidGroupId,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return explainTLS("", err) != nil
}
