package e2e

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// What the runner says.
const (
	linePaused    = `msg="consumer paused`
	lineResumed   = `msg="consumer resumed`
	lineFailed    = `"attempt failed"`
	lineAside     = `msg="message set aside`
	lineDuplicate = "ackafter.verdict=duplicate"
)

// logBuffer is a log to look into.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) count(text string) int { return strings.Count(l.String(), text) }

// show writes the lines above the debug level when the test has failed.
func (l *logBuffer) show(t *testing.T) {
	if !t.Failed() {
		return
	}
	for line := range strings.Lines(l.String()) {
		if !strings.Contains(line, "level=DEBUG") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
