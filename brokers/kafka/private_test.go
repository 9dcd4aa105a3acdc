//go:build unix

package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
	"github.com/ackafter/ackafter/internal/servers"
)

// TestPrivateBroker has what needs a broker of its own, which it configures
// and restarts.
func TestPrivateBroker(t *testing.T) {
	kafkatest.Brokers(t) // skips where there is no Kafka at all
	b := newPrivateBroker(t)
	t.Run("TLS and SASL", b.testSecurity)
	t.Run("epochs", b.testEpochs)
	t.Run("restart", func(t *testing.T) { b.testRestart(t, b.server.Stop) })
	t.Run("crash", func(t *testing.T) { b.testRestart(t, b.server.Kill) })
}

type privateBroker struct {
	server *servers.Kafka
	secure string // the address of the listener with TLS and SASL
	roots  *x509.CertPool
}

func newPrivateBroker(t *testing.T) *privateBroker {
	dir := t.TempDir()
	b := &privateBroker{roots: x509.NewCertPool()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.secure = listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	b.server, err = servers.StartKafka(t.Context(), dir, servers.KafkaConfig{
		Listeners: []servers.KafkaListener{{Name: "SECURE", Protocol: "SASL_SSL", Address: b.secure}},
		Settings: map[string]string{
			"listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
			"listener.name.secure.plain.sasl.jaas.config":  `org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";`,
			"listener.name.secure.ssl.keystore.type":       "PEM",
			"listener.name.secure.ssl.keystore.location":   b.keyStore(t, dir),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.server.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// keyStore borrows the certificate of net/http/httptest.
func (b *privateBroker) keyStore(t *testing.T, dir string) string {
	lender := httptest.NewTLSServer(nil)
	defer lender.Close()
	b.roots.AddCert(lender.Certificate())
	key, err := x509.MarshalPKCS8PrivateKey(lender.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "keystore.pem")
	content := slices.Concat(
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lender.Certificate().Raw}))
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (b *privateBroker) testSecurity(t *testing.T) {
	topic := kafkatest.New(t, b.server.Brokers(), 1)
	topic.Send(0, "by TLS")
	config := topic.Config()
	config.Brokers = []string{b.secure}
	config.TLS = &tls.Config{RootCAs: b.roots}
	config.SASL = plain.Mechanism{Username: "alice", Password: "secret"}
	if err := newSource(t, config).Check(t.Context(), consumer.Plan{Workers: 1, Warn: func(string) {}}); err != nil {
		t.Errorf("Check: %v", err)
	}
	kafkatest.Start(t, config).Want("by TLS")

	wrong := config
	wrong.SASL = plain.Mechanism{Username: "alice", Password: "hush"}
	check(t, wrong, false, "do not accept the user or the password of Config.SASL")
	wrong.SASL = nil
	check(t, wrong, true, "or SASL (Config.SASL)")
	wrong = config
	wrong.TLS = &tls.Config{}
	check(t, wrong, false, "not trusted", "RootCAs of Config.TLS")
	wrong.TLS = nil
	check(t, wrong, false, "expects TLS", "set Config.TLS")
}

func newSource(t *testing.T, c kafka.Config) *kafka.Source {
	t.Helper()
	s, err := kafka.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A broker that is restarted leads its partitions in another epoch. An offset
// that was committed in the one before, beyond where that has ended, is one of
// messages that are lost.
func (b *privateBroker) testEpochs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	topic := kafkatest.New(t, b.server.Brokers(), 1)
	topic.Send(0, "a", "b")
	w := kafkatest.Start(t, topic.Config())
	w.Want("a", "b")
	w.Stop()
	at, epoch, metadata := topic.CommittedIn(0)
	if at != 2 || epoch < 0 {
		t.Fatalf("committed is %d in the epoch %d, want 2 and an epoch", at, epoch)
	}
	if err := b.server.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	topic.Send(0, "c", "d")
	w = kafkatest.Start(t, topic.Config()) // this goes on, in the new epoch
	w.Want("c", "d")
	w.Stop()
	if at, now, _ := topic.CommittedIn(0); at != 4 || now <= epoch {
		t.Fatalf("committed is %d in the epoch %d, want 4 in one above %d", at, now, epoch)
	}
	for _, lost := range []struct {
		epoch int32 // in which the offset 3 was committed
		want  string
	}{{epoch, "the log is another one from 2 on"}, {epoch + 100, "does not know what was before it"}} {
		topic.CommitIn(0, 3, lost.epoch, metadata)
		err := kafkatest.Start(t, topic.Config()).Failed()
		if !errors.Is(err, kafka.ErrOffsetOutOfRange) {
			t.Errorf("Run: %v", err)
		}
		wantText(t, err, "has committed the offset 3", lost.want)
	}
	topic.CommitIn(0, 3, epoch, metadata)
	config := topic.Config()
	config.OutOfRange = kafka.OutOfRangeFirst
	kafkatest.Start(t, config).Want("c", "d")
}

func (b *privateBroker) testRestart(t *testing.T, stop func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	topic := kafkatest.New(t, b.server.Brokers(), 2)
	topic.Send(0, "before", "held")
	w := kafkatest.Start(t, topic.Config())
	w.Want("before")
	held := w.Next()
	kafkatest.Eventually(t, "it is committed", func() bool { return topic.Committed(0) == 1 })
	if err := stop(ctx); err != nil {
		t.Fatal(err)
	}
	kafkatest.Eventually(t, "unhealthy, with the cause", func() bool {
		err := w.Source.Health()
		return err != nil && errors.Is(err, consumer.ErrOutage) && strings.Contains(err.Error(), "refused")
	})
	if err := b.server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	w.Want("held")
	if err := held.Stream.Ack(ctx, held.Message); err == nil {
		t.Error("Ack on the stream that was lost")
	}
	topic.Send(1, "after")
	w.Want("after")
	kafkatest.Eventually(t, "healthy", func() bool { return w.Source.Health() == nil })
}
