package kafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error = %v\nwant %q in it", err, part)
		}
	}
}

// check returns the error of Check, which must have the given parts, and be an
// outage or not.
func check(t *testing.T, c kafka.Config, outage bool, parts ...string) {
	t.Helper()
	if c.Group == "" {
		c.Group, c.Topics = "g", []string{"t"}
	}
	s, err := kafka.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Limit)
	defer cancel()
	err = s.Check(ctx, consumer.Plan{Workers: 1, Warn: func(problem string) { t.Errorf("warning: %s", problem) }})
	wantText(t, err, parts...)
	if errors.Is(err, consumer.ErrOutage) != outage {
		t.Errorf("an outage = %v, want %v: %v", !outage, outage, err)
	}
}

func TestCheckPasses(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	topic.Send(0, "the partition has a leader")
	s := kafka.Group(topic.Brokers, topic.Group, topic.Name)
	var warnings []string
	plan := consumer.Plan{Workers: 4, DrainTimeout: 15 * time.Second, Warn: func(problem string) { warnings = append(warnings, problem) }}
	if err := s.Check(t.Context(), plan); err != nil || len(warnings) != 0 {
		t.Errorf("Check: %v, warnings %q", err, warnings)
	}
	plan.DrainTimeout, plan.Workers = time.Minute, 20_000
	if err := s.Check(t.Context(), plan); err != nil || len(warnings) != 2 {
		t.Errorf("Check: %v, warnings %q, want two", err, warnings)
	}
	if s.System() != "kafka" {
		t.Errorf("the system is %q", s.System())
	}
}

func TestCheckMissingTopic(t *testing.T) {
	t.Parallel()
	brokers := kafkatest.Brokers(t)
	check(t, kafka.Config{Brokers: brokers}, false, `topic "t"`, "Unknown Topic", "create it, or correct Config.Topics")
}

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
	check(t, kafka.Config{Brokers: []string{free}}, true, "cannot reach a broker", free, "refused")
	check(t, kafka.Config{Brokers: []string{"no-such-host.invalid:9092"}}, true, "no-such-host.invalid", "lookup")
}

func TestCheckSilentPeer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, c := range []*tls.Config{nil, {}} {
		check(t, kafka.Config{Brokers: []string{listener.Addr().String()}, TLS: c, DialTimeout: 50 * time.Millisecond, RequestTimeout: 100 * time.Millisecond},
			true, "does not answer")
	}
}

func TestCheckTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	at := []string{server.Listener.Addr().String()}
	check(t, kafka.Config{Brokers: at}, true, "is TLS missing")
	check(t, kafka.Config{Brokers: at, TLS: &tls.Config{}}, false, "not trusted", "RootCAs of Config.TLS")
	check(t, kafka.Config{Brokers: kafkatest.Brokers(t), TLS: &tls.Config{}, DialTimeout: 2 * time.Second}, true, "TLS")
}

func TestConfigMistakes(t *testing.T) {
	t.Parallel()
	_, err := kafka.New(kafka.Config{
		Brokers: []string{"host"}, Topics: []string{"a b", "ok", "ok"}, Start: 9, OutOfRange: 9, Window: -1, FetchBytes: -1,
		HeartbeatInterval: time.Minute, CommitInterval: -1, WatchInterval: time.Microsecond, BackoffMin: time.Second, BackoffMax: time.Millisecond,
	})
	wantText(t, err, "Brokers[0]", "Group is empty", "Topics[0]", "Topics[2]", "Start", "OutOfRange", "Window", "FetchBytes",
		"HeartbeatInterval", "CommitInterval", "WatchInterval", "BackoffMax")
	wantText(t, err, "is Start(9)", "is OutOfRange(9)")
	s := kafka.Group(nil, "")
	wantText(t, s.Validate(), "Brokers is empty", "Group is empty", "Topics is empty")
	wantText(t, s.Check(t.Context(), consumer.Plan{}), "Brokers is empty")
	wantText(t, s.Run(t.Context(), nil), "Brokers is empty")
}
