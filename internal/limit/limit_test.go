package limit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/internal/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timer limit.Timer
		defer timer.Stop()
		// The second context outlives the first one's deadline, the third ends
		// before the second would have.
		for _, step := range []struct{ limit, work time.Duration }{
			{10 * time.Second, 8 * time.Second}, {10 * time.Second, 9 * time.Second}, {time.Second, 0},
		} {
			ctx, cancel := timer.Context(context.Background(), step.limit)
			ends, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, time.Now().Add(step.limit), ends)
			time.Sleep(step.work)
			synctest.Wait()
			require.NoError(t, ctx.Err())
			if step.work == 0 {
				<-ctx.Done()
				require.Equal(t, ends, time.Now())
				require.Equal(t, context.DeadlineExceeded, ctx.Err())
				require.Equal(t, context.DeadlineExceeded, context.Cause(ctx))
			}
			cancel()
			require.Error(t, ctx.Err())
		}
	})
}

func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timer limit.Timer
		ctx, cancel := timer.Context(context.Background(), time.Second)
		cancel()
		require.Equal(t, context.Canceled, ctx.Err())

		parent, cancelParent := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancelParent()
		ctx, cancel = timer.Context(parent, time.Second)
		defer cancel()
		ends, _ := ctx.Deadline()
		require.Equal(t, time.Now().Add(time.Millisecond), ends)
		<-ctx.Done()
		require.Equal(t, context.DeadlineExceeded, ctx.Err())

		timer.Stop()
		ctx, cancel = timer.Context(context.Background(), time.Second)
		defer cancel()
		<-ctx.Done()
		require.Equal(t, context.DeadlineExceeded, ctx.Err(), "a stopped timer starts again")
	})
}
