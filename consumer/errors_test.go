package consumer_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

func TestPermanent(t *testing.T) {
	t.Parallel()
	require.NoError(t, consumer.Permanent(nil))
	require.False(t, consumer.IsPermanent(nil))
	require.False(t, consumer.IsPermanent(io.EOF))

	err := consumer.Permanent(io.EOF)
	require.True(t, consumer.IsPermanent(err))
	require.True(t, consumer.IsPermanent(fmt.Errorf("more: %w", err)))
	require.True(t, consumer.IsPermanent(errors.Join(errors.New("other"), err)))
	require.True(t, consumer.IsPermanent(consumer.RetryAfter(time.Second, err)))
	require.ErrorIs(t, err, io.EOF)
	require.EqualError(t, err, "permanent: EOF")
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	require.NoError(t, consumer.RetryAfter(time.Second, nil))
	err := consumer.RetryAfter(time.Second, io.EOF)
	require.ErrorIs(t, err, io.EOF)
	require.EqualError(t, err, "EOF")
	require.False(t, consumer.IsPermanent(err))
}

func TestPanicError(t *testing.T) {
	t.Parallel()
	require.EqualError(t, &consumer.PanicError{Value: 7}, "panic: 7")
	require.NoError(t, errors.Unwrap(&consumer.PanicError{Value: "text"}))
	require.ErrorIs(t, &consumer.PanicError{Value: fmt.Errorf("deep: %w", io.EOF)}, io.EOF)
}

func TestMessageError(t *testing.T) {
	t.Parallel()
	err := &consumer.MessageError{ID: "a\x00", Position: "orders/3@1842", Err: io.EOF}
	require.ErrorIs(t, err, io.EOF)
	require.EqualError(t, err, `message "a\x00" at orders/3@1842: EOF (it is not acknowledged)`)
}

func TestNames(t *testing.T) {
	t.Parallel()
	for v, name := range map[fmt.Stringer]string{
		consumer.Processed: "processed", consumer.Duplicate: "duplicate", consumer.Mismatch: "mismatch",
		consumer.Verdict(0): "no verdict", consumer.Verdict(99): "no verdict",
		consumer.Starting: "starting", consumer.Running: "running", consumer.Paused: "paused",
		consumer.Draining: "draining", consumer.Stopped: "stopped", consumer.State(99): "unknown",
	} {
		require.Equal(t, name, v.String())
	}
}
