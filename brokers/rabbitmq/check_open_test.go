package rabbitmq_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
)

func TestCheckUnreachable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	login := url.UserPassword("user", secret)
	refused := url.URL{Scheme: "amqp", User: login, Host: free}
	wantOutage(t, check(t, rabbitmq.Config{URL: refused.String(), Queue: "q"}, "cannot reach "+free, "refused"), true)
	unknown := url.URL{Scheme: "amqp", User: login, Host: "no-such-host.invalid"}
	wantOutage(t, check(t, rabbitmq.Config{URL: unknown.String(), Queue: "q"}, "cannot reach no-such-host.invalid:5672", "lookup"), true)
}

// A peer that accepts and says nothing is given up after DialTimeout.
func TestCheckSilentPeer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, scheme := range []string{"amqp", "amqps"} {
		u := url.URL{Scheme: scheme, User: url.UserPassword("user", secret), Host: listener.Addr().String()}
		c := rabbitmq.Config{URL: u.String(), Queue: "q", DialTimeout: 50 * time.Millisecond}
		wantOutage(t, check(t, c, "does not answer", "Config.DialTimeout"), true)
	}
}

// A peer that closes at once may be a proxy whose broker is away.
func TestCheckClosingPeer(t *testing.T) {
	t.Parallel()
	_, proxied := newProxy(t, "amqp://127.0.0.1:1")
	wantOutage(t, check(t, rabbitmq.Config{URL: proxied, Queue: "q"}, "closed while it was opened", "is TLS missing"), true)
}

func TestCheckTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	login := url.UserPassword("user", secret)
	plain := url.URL{Scheme: "amqp", User: login, Host: server.Listener.Addr().String()}
	// It closes without an answer, as a proxy without a broker does. RabbitMQ
	// itself answers, see TestPrivateBroker.
	wantOutage(t, check(t, rabbitmq.Config{URL: plain.String(), Queue: "q"}, "is TLS missing"), true)
	untrusted := url.URL{Scheme: "amqps", User: login, Host: server.Listener.Addr().String()}
	wantOutage(t, check(t, rabbitmq.Config{URL: untrusted.String(), Queue: "q"}, "not trusted", "TLSClientConfig"), false)
}

func TestCheckTLSToPlainPort(t *testing.T) {
	t.Parallel()
	u := at(t, brokerURL(t), func(u *url.URL) { u.Scheme = "amqps" })
	wantOutage(t, check(t, rabbitmq.Config{URL: u, Queue: "q"}, "does not speak TLS", "amqp://"), false)
	c := rabbitmq.Config{URL: u, Queue: "q", AMQP: amqp.Config{TLSClientConfig: &tls.Config{}}}
	check(t, c, "does not speak TLS")
	if c.AMQP.TLSClientConfig.ServerName != "" {
		t.Error("the caller's tls.Config was modified")
	}
}

func TestCheckCredentials(t *testing.T) {
	t.Parallel()
	u := at(t, brokerURL(t), func(u *url.URL) { u.User = url.UserPassword("nobody", secret) })
	wantOutage(t, check(t, rabbitmq.Config{URL: u, Queue: "q"}, `refuses the user "nobody"`, "password"), false)
	sasl := amqp.Config{SASL: []amqp.Authentication{&amqp.AMQPlainAuth{Username: "somebody", Password: secret}}}
	check(t, rabbitmq.Config{URL: u, Queue: "q", AMQP: sasl}, `refuses the user "somebody"`)
}

// A broker that goes down while it looks at the password closes the socket
// without a word, and so does one that does not like it.
func TestCheckBrokerGoesDownDuringLogin(t *testing.T) {
	t.Parallel()
	u := brokerURL(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer listener.Close()
	proxied := at(t, u, func(u *url.URL) {
		target := u.Host
		wg.Go(func() { passUntilLogin(t, listener, target) })
		u.Host = listener.Addr().String()
	})
	wantOutage(t, check(t, rabbitmq.Config{URL: proxied, Queue: "q"}, "cannot reach", "refused"), true)
}

// passUntilLogin passes on the protocol header and the broker's greeting, and
// is gone when the client answers.
func passUntilLogin(t *testing.T, listener net.Listener, target string) {
	client, err := listener.Accept()
	if err != nil {
		return
	}
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		t.Error(err)
		return
	}
	defer server.Close()
	var buf [4096]byte
	for _, leg := range []struct{ from, to net.Conn }{{client, server}, {server, client}} {
		n, err := leg.from.Read(buf[:])
		if err == nil {
			_, err = leg.to.Write(buf[:n])
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
	if _, err := client.Read(buf[:]); err != nil {
		t.Error(err)
	}
	_ = listener.Close()
}
