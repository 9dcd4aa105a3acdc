package consumer_test

import (
	"context"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

func TestHeaders(t *testing.T) {
	t.Parallel()
	h := headers("a", "1", "b", "2", "a", "3", "empty", "")
	require.Equal(t, "3", h.Get("a"), "the last one wins")
	require.Equal(t, "2", h.Get("b"))
	require.Empty(t, h.Get("A"), "keys are compared byte by byte")

	v, ok := h.Lookup("a")
	require.True(t, ok)
	require.Equal(t, []byte("3"), v)
	v, ok = h.Lookup("empty")
	require.True(t, ok)
	require.Empty(t, v)
	_, ok = h.Lookup("none")
	require.False(t, ok)

	require.Equal(t, [][]byte{[]byte("1"), []byte("3")}, h.Values("a"))
	require.Empty(t, h.Values("none"))
	require.Empty(t, consumer.Headers(nil).Get("a"))
}

// hashOf returns what the inbox gets to remember of m.
func hashOf(t *testing.T, m *message, choose func(*message) []byte) (hash []byte) {
	t.Helper()
	f := newFixture(t)
	f.cfg.Hash = choose
	f.cfg.Handler = handler(func(_ context.Context, _ *Tx, m *message) error { hash = m.Hash; return nil })
	f.broker.Publish(m)
	f.start()
	f.finish()
	return hash
}

func TestHash(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sum := func(s string) []byte { h := sha256.Sum256([]byte(s)); return h[:16] }
		a := &message{ID: "a", Body: []byte("body"), Headers: headers("k", "v")}
		require.Equal(t, sum("body"), hashOf(t, a, nil), "the body by default")
		require.Equal(t, sum("body"), hashOf(t, a, consumer.HashBody))
		require.Equal(t, sum("v"), hashOf(t, a, func(m *message) []byte { return m.Headers[0].Value }))
		require.Empty(t, hashOf(t, a, consumer.HashNothing))

		tombstone := &message{ID: "a"}
		require.Equal(t, sum(""), hashOf(t, tombstone, nil), "a tombstone is a body like any other")
		require.Equal(t, sum(""), hashOf(t, &message{ID: "a", Body: []byte{}}, nil))
	})
}

func TestHashNothingMakesNoMismatch(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.cfg.Hash = consumer.HashNothing
		f.broker.Publish(&message{ID: "a", Body: []byte("at 9:00")}, &message{ID: "a", Body: []byte("at 9:01")})
		f.start()
		f.finish()
		require.Equal(t, []string{"at 9:00"}, f.inbox.committed())
	})
}
