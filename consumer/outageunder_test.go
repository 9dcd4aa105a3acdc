package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

var errConnClosed = errors.New("conn closed")

// losingInbox takes errConnClosed of a handler for an outage, as an inbox does that
// finds its connection lost.
type losingInbox struct{ *memInbox }

// Process implements consumer.Inbox.
func (in losingInbox) Process(ctx context.Context, subscriber string, ms []*message,
	apply func(context.Context, *Tx, []*message) error) ([]consumer.Verdict, error) {
	v, err := in.memInbox.Process(ctx, subscriber, ms, apply)
	if errors.Is(err, errConnClosed) {
		err = fmt.Errorf("%w: %w", consumer.ErrOutage, err)
	}
	return v, err
}

// A message whose handler takes the database away each time does not pause the
// runner for ever: the sixth time in a row is a failed attempt. Those in a batch
// with it have not failed.
func TestOutageUnderOneMessageHasAnEnd(t *testing.T) {
	t.Parallel()
	for _, maxBatch := range []int{1, 4} {
		t.Run(fmt.Sprintf("MaxBatch=%d", maxBatch), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.cfg.Inbox = losingInbox{f.inbox}
				f.cfg.MaxBatch = maxBatch
				var attempts list[string]
				f.cfg.Handler = handler(func(_ context.Context, tx *Tx, m *message) error {
					attempts.add(fmt.Sprint(m.ID, " ", m.Attempt))
					if m.ID == "m1" && m.Attempt == 1 {
						return errConnClosed
					}
					return tx.Do(m.ID)
				})
				f.broker.Publish(msgs(4)...)
				f.start()
				f.finish()
				require.ElementsMatch(t, ids(msgs(4)), f.inbox.committed())
				require.Len(t, f.log.with("attempt failed"), 1)
				runs := map[string]int{}
				for _, a := range attempts.all() {
					runs[a]++
				}
				require.Equal(t, 1, runs["m1 2"])
				if maxBatch == 1 {
					require.Equal(t, map[string]int{"m0 1": 1, "m1 1": 6, "m1 2": 1, "m2 1": 1, "m3 1": 1}, runs)
				}
				require.Greater(t, runs["m1 1"], 5)
			})
		})
	}
}
