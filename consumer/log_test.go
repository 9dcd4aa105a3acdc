package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

// requireFields checks which attributes a line has, beside slog's own.
func requireFields(t *testing.T, line map[string]any, names ...string) {
	t.Helper()
	line = maps.Clone(line)
	for _, own := range []string{"time", "level", "msg"} {
		delete(line, own)
	}
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(line)))
}

// A healthy run says nothing above the debug level but that it began and ended.
func TestLogOfAHealthyRun(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.broker.Publish(&message{ID: "a", Topic: "orders"}, msg("a"), msg("b"))
		f.cfg.Hash = consumer.HashNothing
		f.start()
		f.finish()
		require.Equal(t, []string{"INFO consumer started", "INFO consumer stopped"}, f.log.loud())

		started := f.log.with("consumer started")[0]
		requireFields(t, started, "messaging.consumer.group.name", "messaging.system",
			"ackafter.workers", "ackafter.max_transactions")
		require.Equal(t, "billing", started["messaging.consumer.group.name"])
		require.Equal(t, "memory", started["messaging.system"])

		settled := f.log.with("message settled")
		require.Len(t, settled, 3)
		requireFields(t, settled[0], "messaging.consumer.group.name", "messaging.system", "messaging.destination.name",
			"messaging.message.id", "ackafter.stream", "ackafter.position", "ackafter.attempt", "ackafter.verdict")
		require.Equal(t, "orders", settled[0]["messaging.destination.name"])
		require.Equal(t, "a", settled[0]["messaging.message.id"])
		require.Equal(t, "memory/0", settled[0]["ackafter.stream"])
		require.Equal(t, "memory/0@0", settled[0]["ackafter.position"])
		require.EqualValues(t, 1, settled[0]["ackafter.attempt"])
		require.Equal(t, "processed", settled[0]["ackafter.verdict"])
		require.Equal(t, "duplicate", settled[1]["ackafter.verdict"])
	})
}

func TestLogOfAFailure(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.failing(2, func() error { return consumer.RetryAfter(7*time.Second, errors.New("not yet")) })
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		require.Equal(t, []string{"INFO consumer started", "WARN attempt failed", "INFO consumer stopped"}, f.log.loud())
		line := f.log.with("attempt failed")[0]
		requireFields(t, line, "messaging.consumer.group.name", "messaging.system", "messaging.destination.name",
			"messaging.message.id", "ackafter.stream", "ackafter.position", "ackafter.attempt", "error", "ackafter.retry_in")
		require.Equal(t, "not yet", line["error"])
		require.EqualValues(t, 1, line["ackafter.attempt"], "the attempt that failed")
		require.EqualValues(t, 7*time.Second, line["ackafter.retry_in"])
	})
}

func TestLogOfAnOutage(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Probe = consumer.Backoff{Min: time.Minute, Max: time.Minute}
		f.inbox.away(errAway)
		f.broker.Publish(msg("a"))
		f.start()
		f.inbox.away(nil)
		f.finish()
		require.Equal(t, errAway.Error(), f.log.with(paused)[0]["error"])
		require.InDelta(t, 33*time.Second, f.log.with(resumed)[0]["ackafter.paused_for"], float64(27*time.Second))
	})
}

// quiet is a slog.Handler that takes nothing below Info, and counts.
type quiet struct {
	slog.Handler
	asked *list[string]
}

func (quiet) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (q quiet) Handle(_ context.Context, r slog.Record) error { q.asked.add(r.Message); return nil }

func (q quiet) WithAttrs([]slog.Attr) slog.Handler { return q }

func TestLogKeepsToItsLevel(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		var lines list[string]
		f.cfg.Logger = slog.New(quiet{asked: &lines})
		f.contended(3)
		f.broker.Publish(msgs(10)...)
		f.start()
		f.finish()
		require.Equal(t, []string{"consumer started", "consumer stopped"}, lines.all())
	})
}
