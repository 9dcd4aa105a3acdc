package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

// invalid is a Source, an Inbox and a Handler that finds fault with itself.
type invalid struct {
	*memory.Broker
	*memInbox
	what string
}

func (v invalid) Validate() error { return errors.New(v.what + " is wrong") }

func (v invalid) Handle(context.Context, *Tx, *message) error { return nil }

func TestNewReportsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	_, err := consumer.New(config{
		Source:          (*memory.Broker)(nil),
		Inbox:           (*memInbox)(nil),
		Handler:         handler(nil),
		Middleware:      []consumer.Middleware[*Tx]{nil},
		Workers:         -1,
		MaxTransactions: -1,
		Buffer:          -2,
		HandlerTimeout:  -1,
		AckTimeout:      -1,
		DrainTimeout:    -1,
		AbandonTimeout:  -1,
		StartTimeout:    -1,
		Retry:           consumer.Backoff{Min: 2, Max: 1},
		Probe:           consumer.Backoff{Min: -1},
	})
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Equal(t, "consumer.Config:", lines[0])
	fields := []string{"Subscriber", "Source", "Inbox", "Handler", "Middleware[0]", "Workers", "MaxTransactions", "Buffer",
		"HandlerTimeout", "AckTimeout", "DrainTimeout", "AbandonTimeout", "StartTimeout", "Retry", "Probe"}
	for i, field := range fields {
		require.True(t, strings.HasPrefix(lines[i+1], field+": "), "%s: %q", field, lines[i+1])
	}
	require.Len(t, lines, len(fields)+1)
}

func TestNewRequires(t *testing.T) {
	t.Parallel()
	_, err := consumer.New(config{})
	for _, field := range []string{"Subscriber", "Source", "Inbox", "Handler"} {
		require.ErrorContains(t, err, field+": is required")
	}
	require.Equal(t, 4, strings.Count(err.Error(), "\n"), "every other field has a default:\n%v", err)
}

func TestNewAsksThePartsWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := consumer.New(config{
		Subscriber: "s",
		Source:     invalid{what: "the url"},
		Inbox:      invalid{what: "the schema"},
		Handler:    consumer.Mux[*Tx]{},
	})
	require.ErrorContains(t, err, "Source: the url is wrong")
	require.ErrorContains(t, err, "Inbox: the schema is wrong")
	require.ErrorContains(t, err, "Handler: Mux.Handlers is empty")
	require.ErrorContains(t, err, "Mux.Unknown")
}

func TestNewChecksOneField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*config)
		says   string // "" when nothing is wrong
	}{
		"subscriber of 255 bytes":  {func(c *config) { c.Subscriber = strings.Repeat("x", 255) }, ""},
		"subscriber of 256 bytes":  {func(c *config) { c.Subscriber = strings.Repeat("ü", 128) }, "Subscriber: must have at most 255 bytes, has 256"},
		"subscriber not UTF-8":     {func(c *config) { c.Subscriber = "a\xff" }, "Subscriber: must be valid UTF-8"},
		"subscriber with NUL":      {func(c *config) { c.Subscriber = "a\x00" }, "Subscriber: must be valid UTF-8 without NUL"},
		"buffer below workers":     {func(c *config) { c.Workers, c.Buffer = 8, 7 }, "Buffer: must hold at least one message for each of the 8 workers, is 7"},
		"buffer of workers":        {func(c *config) { c.Workers, c.Buffer = 8, 8 }, ""},
		"many workers, no buffer":  {func(c *config) { c.Workers = 1000 }, ""},
		"large Min and no Max":     {func(c *config) { c.Retry.Min = time.Hour }, ""},
		"Min above Max":            {func(c *config) { c.Probe = consumer.Backoff{Min: 2, Max: 1} }, "Probe: must have 0 <= Min <= Max, has Min 2ns and Max 1ns"},
		"second middleware is nil": {func(c *config) { c.Middleware = append(c.Middleware, nil, nil) }, "Middleware[1]: is nil"},
	} {
		f := newFixture(t)
		c.change(&f.cfg)
		_, err := consumer.New(f.cfg)
		if c.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.says, name)
	}
}

// limited is an inbox that says how much it can carry.
type limited struct {
	*memInbox
	limit int
	plan  consumer.Plan
}

func (l *limited) MaxTransactions() int { return l.limit }

func (l *limited) Check(_ context.Context, p consumer.Plan) error {
	l.plan = p
	return nil
}

func TestDefaults(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		in := &limited{memInbox: f.inbox, limit: 7}
		f.cfg.Inbox = in
		f.start()
		require.NotNil(t, in.plan.Warn)
		in.plan.Warn = nil
		require.Equal(t, consumer.Plan{
			Subscriber: "billing", Transactions: 7, Workers: 1, MaxBatch: 1,
			HandlerTimeout: 30 * time.Second, DrainTimeout: 15 * time.Second,
		}, in.plan)
	})
}

func TestMaxTransactionsGoesBeforeTheInboxLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFixture(t)
		in := &limited{memInbox: f.inbox, limit: 7}
		f.cfg.Inbox = in
		f.cfg.MaxTransactions = 3
		f.start()
		require.Equal(t, 3, in.plan.Transactions)
	})
}
