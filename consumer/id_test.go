package consumer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

func headers(pairs ...string) consumer.Headers {
	var h consumer.Headers
	for i := 0; i < len(pairs); i += 2 {
		h = append(h, consumer.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return h
}

func withHeaders(pairs ...string) *message { return &message{Headers: headers(pairs...)} }

func fixedID(id string) consumer.IDFunc {
	return func(*message) (string, error) { return id, nil }
}

func TestCheckID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", " ", "ü", strings.Repeat("x", 512), strings.Repeat("ü", 256)} {
		require.NoError(t, consumer.CheckID(id))
	}
	for id, says := range map[string]string{
		"":                       "empty",
		strings.Repeat("x", 513): "513 bytes",
		strings.Repeat("ü", 257): "514 bytes",
		"a\x00b":                 "NUL",
		"\x00":                   "NUL",
		"a\xff":                  "UTF-8",
		"\xed\xa0\x80":           "UTF-8", // half of a surrogate pair
	} {
		err := consumer.CheckID(id)
		require.ErrorIs(t, err, consumer.ErrNoID, "%q", id)
		require.ErrorContains(t, err, says)
	}
}

func TestBrokerID(t *testing.T) {
	t.Parallel()
	id, err := consumer.BrokerID(&message{ID: "x"})
	require.NoError(t, err)
	require.Equal(t, "x", id)
}

func TestHeaderID(t *testing.T) {
	t.Parallel()
	f := consumer.HeaderID("first", "second")
	for _, c := range []struct {
		m    *message
		want string
	}{
		{withHeaders("second", "2", "first", "1"), "1"},
		{withHeaders("second", "2"), "2"},
		{withHeaders("first", "old", "first", "new"), "new"},
	} {
		id, err := f(c.m)
		require.NoError(t, err)
		require.Equal(t, c.want, id)
	}
	_, err := f(withHeaders("First", "keys are compared byte by byte"))
	require.ErrorIs(t, err, consumer.ErrNoID)
	require.ErrorContains(t, err, `"first" "second"`)
}

func TestCloudEventID(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"ce_", "ce-", "cloudEvents:", "cloudEvents_"} {
		id, err := consumer.CloudEventID(withHeaders(prefix+"id", "7"))
		require.NoError(t, err, prefix)
		require.Equal(t, "0:/7", id, "an event without a source has the empty one")

		here, err := consumer.CloudEventID(withHeaders(prefix+"id", "7", prefix+"source", "/here"))
		require.NoError(t, err)
		there, err := consumer.CloudEventID(withHeaders(prefix+"id", "7", prefix+"source", "/there"))
		require.NoError(t, err)
		require.NotEqual(t, here, there, "an id is unique within its source only")
		require.NotEqual(t, "7", here)

		_, err = consumer.CloudEventID(withHeaders(prefix+"id", "", prefix+"source", "/here"))
		require.ErrorIs(t, err, consumer.ErrNoID, "the scope must not hide that there is no id")
		_, err = consumer.CloudEventID(withHeaders(prefix+"source", "/here"))
		require.ErrorIs(t, err, consumer.ErrNoID)
	}
	id, err := consumer.CloudEventID(withHeaders("ce_id", "7", "ce-source", "of another binding"))
	require.NoError(t, err)
	require.Equal(t, "0:/7", id)
}

// The same event means the same id, whichever broker carries it.
func TestCloudEventIDIsTheSameInEachBinding(t *testing.T) {
	t.Parallel()
	kafka, err := consumer.CloudEventID(withHeaders("ce_id", "7", "ce_source", "/s"))
	require.NoError(t, err)
	amqp, err := consumer.CloudEventID(withHeaders("cloudEvents:id", "7", "cloudEvents:source", "/s"))
	require.NoError(t, err)
	require.Equal(t, kafka, amqp)
}

func TestPositionID(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"orders/3@1842", "o@9/0@0", "t/0@18446744073709551615"} {
		id, err := consumer.PositionID(&message{Position: place})
		require.NoError(t, err, place)
		require.Equal(t, place, id)
	}
	for _, delivery := range []string{
		"", "@1", "orders/3@", "orders/3@-1", "orders/3@+1", "orders/3@1x", "orders/3",
		"queue orders #17",
		"queue x@1 #17",   // the queue "x@1"
		"queue a #1@5 #7", // the queue "a #1@5"
		"queue @ #7",
		"queue 5 #7@ #1",
	} {
		_, err := consumer.PositionID(&message{Position: delivery})
		require.ErrorIs(t, err, consumer.ErrNoID, delivery)
	}
}

// logPosition is a LogPositioner.
type logPosition struct {
	at  string
	err error
}

func (p logPosition) LogPosition() (string, error) { return p.at, p.err }

func TestPositionIDOfALogPositioner(t *testing.T) {
	t.Parallel()
	id, err := consumer.PositionID(&message{Position: "orders/3@1842", Raw: logPosition{at: "orders~id/3@1842"}})
	require.NoError(t, err)
	require.Equal(t, "orders~id/3@1842", id)
	reason := errors.New("the reason")
	_, err = consumer.PositionID(&message{Position: "orders/3@1842", Raw: logPosition{err: reason}})
	require.ErrorIs(t, err, consumer.ErrNoID)
	require.ErrorIs(t, err, reason)
}

func TestFirstID(t *testing.T) {
	t.Parallel()
	none := func(*message) (string, error) { return "", errors.New("none here") }
	for _, unusable := range []string{"a\x00", "\xff", strings.Repeat("x", 513)} {
		id, err := consumer.FirstID(none, fixedID(unusable), fixedID("another"))(&message{})
		require.NoError(t, err)
		require.ErrorIs(t, consumer.CheckID(id), consumer.ErrNoID, "a second identity for one event")
	}
	for _, useless := range []consumer.IDFunc{none, fixedID("")} {
		id, err := consumer.FirstID(useless, fixedID("found"), fixedID("later"))(&message{})
		require.NoError(t, err)
		require.Equal(t, "found", id)
	}
	_, err := consumer.FirstID(none, fixedID(""))(&message{})
	require.ErrorIs(t, err, consumer.ErrNoID)
	require.ErrorContains(t, err, "none here")
}

// Without a function there is no id, and nobody may take that for one.
func TestFirstOfNothing(t *testing.T) {
	t.Parallel()
	id, err := consumer.FirstID()(&message{})
	if err == nil {
		err = consumer.CheckID(id)
	}
	require.ErrorIs(t, err, consumer.ErrNoID)
}

func TestScopedID(t *testing.T) {
	t.Parallel()
	none := func(*message) (string, error) { return "", consumer.ErrNoID }
	_, err := consumer.ScopedID(none, fixedID("a"))(&message{})
	require.ErrorIs(t, err, consumer.ErrNoID)
	require.ErrorContains(t, err, "scope")
	_, err = consumer.ScopedID(fixedID("a"), none)(&message{})
	require.ErrorIs(t, err, consumer.ErrNoID)
	_, err = consumer.ScopedID(fixedID("a"), fixedID(""))(&message{})
	require.ErrorIs(t, err, consumer.ErrNoID, "the scope must not hide that there is no id")
}

func FuzzScopedID(f *testing.F) {
	f.Add("a", "b/c", "a/b", "c")
	f.Add("", "1:a/b", "a", "b")
	f.Add("1", "2", "12", "")
	f.Add("1:", "/x", "1", ":/x")
	f.Add("3:a/b", "c", "3", "a/b/c")
	f.Add("2", "abcdefghijklX", "abcdefghijkl", "X")
	f.Fuzz(func(t *testing.T, scope1, id1, scope2, id2 string) {
		if id1 == "" || id2 == "" {
			return // no ids
		}
		one, err := consumer.ScopedID(fixedID(scope1), fixedID(id1))(&message{})
		require.NoError(t, err)
		two, err := consumer.ScopedID(fixedID(scope2), fixedID(id2))(&message{})
		require.NoError(t, err)
		require.Equal(t, scope1 == scope2 && id1 == id2, one == two, "%q and %q", one, two)
	})
}
