//go:build unix

package rabbitmq_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/servers"
)

// definitions has one user who may do everything, and one who may do nothing.
const definitions = `{
	"users": [
		{"name": "guest", "password": "guest", "tags": "administrator"},
		{"name": "powerless", "password": "powerless", "tags": ""}
	],
	"vhosts": [{"name": "/"}],
	"permissions": [
		{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
		{"user": "powerless", "vhost": "/", "configure": "", "write": "", "read": ""}
	]
}`

// TestPrivateBroker has what needs a broker of its own, which it configures
// and restarts.
func TestPrivateBroker(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a RabbitMQ")
	}
	b := newPrivateBroker(t)
	t.Run("permissions", b.testPermissions)
	t.Run("TLS", b.testTLS)
	t.Run("restart", func(t *testing.T) { b.testRestart(t, b.server.Stop, true) })
	// A broker that is killed may forget a queue that was declared shortly
	// before, with what is in it.
	t.Run("crash", func(t *testing.T) { b.testRestart(t, b.server.Kill, false) })
}

type privateBroker struct {
	server *servers.RabbitMQ
	url    string // of the TLS port
	roots  *x509.CertPool
}

func newPrivateBroker(t *testing.T) *privateBroker {
	dir := t.TempDir()
	b := &privateBroker{roots: x509.NewCertPool()}
	settings := b.tlsSettings(t, dir)
	settings["load_definitions"] = filepath.Join(dir, "definitions.json")
	write(t, settings["load_definitions"], []byte(definitions))
	var err error
	b.server, err = servers.StartRabbitMQ(t.Context(), dir, servers.RabbitMQConfig{
		Settings: settings,
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

// tlsSettings borrows the certificate of net/http/httptest.
func (b *privateBroker) tlsSettings(t *testing.T, dir string) map[string]string {
	lender := httptest.NewTLSServer(nil)
	defer lender.Close()
	b.roots.AddCert(lender.Certificate())
	key, err := x509.MarshalPKCS8PrivateKey(lender.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lender.Certificate().Raw}))
	write(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	b.url = "amqps://guest:guest@" + listener.Addr().String() + "/"
	return map[string]string{
		"listeners.ssl.1":                  listener.Addr().String(),
		"ssl_options.certfile":             certFile,
		"ssl_options.keyfile":              keyFile,
		"ssl_options.verify":               "verify_none",
		"ssl_options.fail_if_no_peer_cert": "false",
	}
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (b *privateBroker) testPermissions(t *testing.T) {
	c := newClient(t, b.server.URL(), nil)
	u := at(t, b.server.URL(), func(u *url.URL) { u.User = url.UserPassword("powerless", "powerless") })
	declare := rabbitmq.Config{URL: u, Queue: c.queue, Declare: &rabbitmq.Topology{}}
	wantOutage(t, check(t, declare, `the user "powerless" may not use the queue`, "set_permissions"), false)

	// Whether the queue exists is no secret, so Run is the first to know.
	s := rabbitmq.Queue(u, c.queue)
	if err := s.Check(t.Context(), plan(t)); err != nil {
		t.Errorf("Check: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := s.Run(ctx, nil)
	if err == nil || !strings.Contains(err.Error(), `the user "powerless" may not use the queue`) {
		t.Errorf("Run: %v", err)
	}
}

func (b *privateBroker) testTLS(t *testing.T) {
	c := newClient(t, b.server.URL(), nil)
	c.send("by TLS")
	config := rabbitmq.Config{URL: b.url, Queue: c.queue, AMQP: amqp.Config{TLSClientConfig: &tls.Config{RootCAs: b.roots}}}
	w := start(t, newSource(t, config))
	w.want("by TLS")
	w.stop()

	check(t, rabbitmq.Config{URL: b.url, Queue: c.queue}, "not trusted")
	plain := at(t, b.url, func(u *url.URL) { u.Scheme = "amqp" })
	wantOutage(t, check(t, rabbitmq.Config{URL: plain, Queue: c.queue}, "is TLS missing"), false)
}

func (b *privateBroker) testRestart(t *testing.T, stop func(context.Context) error, remembers bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := newClient(t, b.server.URL(), nil)
	c.send("before", "unacknowledged")
	s := newSource(t, rabbitmq.Config{
		URL: b.server.URL(), Queue: c.queue, BackoffMin: time.Millisecond, BackoffMax: 100 * time.Millisecond,
	})
	w := start(t, s)
	before := w.next()
	lost := w.next()
	if err := stop(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "unhealthy, with the cause", func() bool {
		err := s.Health()
		return err != nil && errors.Is(err, consumer.ErrOutage) && strings.Contains(err.Error(), "refused")
	})
	if err := b.server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for _, d := range []delivery{before, lost} {
		if err := d.stream.Ack(ctx, d.Message); err == nil {
			t.Error("Ack on the stream that was lost")
		}
	}
	c.reconnect(b.server.URL())
	c.declare(nil)
	c.send("after")
	if remembers {
		w.want("before", "unacknowledged", "after")
		return
	}
	for {
		d := w.next()
		d.ack(t)
		if string(d.Body) == "after" {
			return
		}
	}
}
