package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/internal/kafkatest"
	"github.com/ackafter/ackafter/internal/pgtest"
	"github.com/ackafter/ackafter/internal/testmain"
)

// TestMain also makes workers of this binary, as main does, and parents.
func TestMain(m *testing.M) {
	if isWorker() {
		os.Exit(workerMain())
	}
	testmain.Need("DATABASE_URL", "AMQP_URL")
	if os.Getenv(beParent) != "" {
		os.Exit(parentMain(context.Background(), []string{"-messages", "100000", "-kills", "1000"}, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// drillFor runs the program, and returns its exit code, its last line and all
// that it printed.
func drillFor(t *testing.T, args ...string) (code int, last, all string) {
	t.Helper()
	pgtest.URL(t) // skips a short run, and fails without a server
	var out bytes.Buffer
	code = parentMain(t.Context(), args, &out, &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return code, lines[len(lines)-1], out.String()
}

func TestWithTheInboxEveryOrderTakesEffectOnce(t *testing.T) {
	t.Parallel()
	code, last, all := drillFor(t, "-messages", "300", "-kills", "4", "-producer-duplicates", "10%")
	require.Equal(t, exitClean, code, all)
	require.Regexp(t, `^audit: sent=300 delivered=[34]\d\d duplicates=[1-9]\d* effects=300 lost=0 doubled=0 balanced=yes$`, last, all)
	require.Contains(t, all, "killed 4 of 4, 2 between commit and acknowledgement")
}

func TestOverKafka(t *testing.T) {
	t.Parallel()
	kafkatest.Brokers(t)
	code, last, all := drillFor(t, "-broker", "kafka", "-messages", "300", "-kills", "2", "-producer-duplicates", "10%")
	require.Equal(t, exitClean, code, all)
	require.Regexp(t, `^audit: sent=300 delivered=\d+ duplicates=[1-9]\d* effects=300 lost=0 doubled=0 balanced=yes$`, last, all)

	code, last, all = drillFor(t, "-broker", "kafka", "-messages", "200", "-kills", "2", "-producer-duplicates", "0", "-inbox=off")
	require.Equal(t, exitFindings, code, all)
	require.Regexp(t, `^audit: sent=200 .* lost=0 doubled=[1-9]\d* balanced=no$`, last, all)
}

func TestWithoutTheInboxOrdersAreDoubled(t *testing.T) {
	t.Parallel()
	// Without duplicates of the producer: the kills alone must show it.
	code, last, all := drillFor(t, "-messages", "300", "-kills", "4", "-producer-duplicates", "0", "-inbox=off")
	require.Equal(t, exitFindings, code, all)
	require.Regexp(t, `^audit: sent=300 .* lost=0 doubled=[1-9]\d* balanced=no$`, last, all)
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-broker pulsar":            `unknown broker "pulsar": there is kafka, rabbitmq`,
		"-messages 100 -kills 20":   "-kills 20 needs at least -messages 1050",
		"-messages 0":               "at least 1",
		"-inbox maybe":              "must be on or off",
		"-producer-duplicates 101%": "must be between 0% and 100%",
		"-demo -inbox=off":          "leave -inbox out",
		"rabbitmq":                  `unexpected argument "rabbitmq"`,
		"-producer-duplicates NaN":  "must be between 0% and 100%",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			require.Equal(t, exitBroken, parentMain(t.Context(), strings.Fields(args), &out, &out))
			require.Contains(t, out.String(), want)
		})
	}
}
