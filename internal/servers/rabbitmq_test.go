//go:build unix

package servers

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestRabbitMQKeepsMessagesAndPort(t *testing.T) {
	needServers(t)
	t.Parallel()
	ctx := testContext(t)
	server, err := StartRabbitMQ(ctx, t.TempDir(), RabbitMQConfig{ConsumerTimeout: time.Minute})
	if err != nil {
		t.Fatalf("StartRabbitMQ: %v", err)
	}
	closeAtEnd(t, server)
	url := server.URL()
	publishConfirmed(ctx, t, url, "kept")
	t.Cleanup(func() { // runs before the server is closed
		if log, err := os.ReadFile(filepath.Join(server.instance.dir, "rabbitmq.log")); t.Failed() {
			t.Logf("%s\n%v", log, err)
		}
	})

	for _, end := range []struct {
		name string
		call func(context.Context) error
	}{{"Stop", server.Stop}, {"Kill", server.Kill}} { // Kill's comment tells why not the other way round
		if err := end.call(ctx); err != nil {
			t.Fatalf("%s: %v", end.name, err)
		}
		if err := PingRabbitMQ(ctx, url); err == nil {
			t.Errorf("the server answers after %s", end.name)
		}
		if err := server.Start(ctx); err != nil {
			t.Fatalf("Start after %s: %v", end.name, err)
		}
		if server.URL() != url {
			t.Errorf("after %s the address is %s, want %s", end.name, server.URL(), url)
		}
		if got := messagesIn(t, url, "kept"); got != 1 {
			t.Errorf("after %s there are %d messages, want 1", end.name, got)
		}
	}
}

func publishConfirmed(ctx context.Context, t *testing.T, url, queue string) {
	t.Helper()
	channel := openChannel(t, url)
	if _, err := channel.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatalf("declare: %v", err)
	}
	if err := channel.Confirm(false); err != nil {
		t.Fatalf("confirm mode: %v", err)
	}
	confirmation, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("message")})
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
	if acknowledged, err := confirmation.WaitContext(ctx); err != nil || !acknowledged {
		t.Fatalf("confirmation: %v, %v", acknowledged, err)
	}
}

func messagesIn(t *testing.T, url, queue string) int {
	t.Helper()
	state, err := openChannel(t, url).QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatalf("look at the queue: %v", err)
	}
	return state.Messages
}

// openChannel opens a channel on a connection of its own, closed by the end of
// the test: the server may be gone before.
func openChannel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		t.Fatalf("channel: %v", err)
	}
	return channel
}
