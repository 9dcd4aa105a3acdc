package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/servers"
)

// beParent makes the test binary run a drill that is not over soon.
const beParent = "ACKAFTER_TEST_PARENT"

func TestNoWorkerOutlivesItsParent(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.URL(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), beParent+"=1")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	// The workers inherit it from their parent, so that it ends with the last.
	inherited, stderr, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stderr = stderr
	require.NoError(t, cmd.Start())
	require.NoError(t, stderr.Close())
	require.NoError(t, inherited.SetReadDeadline(time.Now().Add(time.Minute)))

	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan(), "the first line names the queue")
	name := regexp.MustCompile(`chaos_\w+`).FindString(lines.Text())
	defer removeLeftovers(t, databaseURL, name)
	atWork := regexp.MustCompile(`killed [1-9]`)
	for lines.Scan() && !atWork.MatchString(lines.Text()) {
		continue
	}
	require.NoError(t, cmd.Process.Kill())

	printed, err := io.ReadAll(inherited)
	require.NoError(t, err, "a worker lives; they have printed %s", printed)
	_ = cmd.Wait() // killed
}

// removeLeftovers is what a parent that was killed could not do.
func removeLeftovers(t *testing.T, databaseURL, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := openPool(ctx, databaseURL, 1)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, ledger{name}.drop(ctx, pool))
	url, err := servers.AMQPURL()
	require.NoError(t, err)
	q, err := rabbitMQ{}.open(ctx, url, name)
	require.NoError(t, err)
	require.NoError(t, q.delete(ctx))
}

func TestArmedWorkerReportsInsteadOfAcknowledging(t *testing.T) {
	t.Parallel()
	broker := memory.New()
	broker.Publish(&consumer.Message{ID: "first"}, &consumer.Message{ID: "second"})
	var reports bytes.Buffer
	fp := &failpoint{Source: broker, parent: &parentPipe{out: &reports}, messageID: consumer.BrokerID}

	ctx, stop := context.WithCancel(t.Context())
	require.NoError(t, fp.Run(ctx, func(ctx context.Context, s consumer.Stream) error {
		defer stop()
		ms, err := s.Next(ctx, 10)
		if err != nil {
			return err
		}
		if err := s.Ack(ctx, ms[0]); err != nil {
			return err
		}
		fp.armed.Store(true)
		ackCtx, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, s.Ack(ackCtx, ms[1]), context.DeadlineExceeded)
		return nil
	}))

	require.Equal(t, "serving \ndelivered first second\nsettled first\nheld second\nended second\n", reports.String())
	expired, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.Error(t, broker.Drained(expired), "the second message must still be with the broker")
}
