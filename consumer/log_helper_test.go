package consumer_test

import (
	"encoding/json"
	"log/slog"
	"sync"
)

// recorder keeps what is logged.
type recorder struct {
	mu    sync.Mutex
	lines []map[string]any
}

func (r *recorder) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Write takes one line of JSON.
func (r *recorder) Write(line []byte) (int, error) {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fields)
	return len(line), nil
}

// with returns the lines whose message is msg.
func (r *recorder) with(msg string) []map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []map[string]any
	for _, l := range r.lines {
		if l["msg"] == msg {
			found = append(found, l)
		}
	}
	return found
}

// loud returns the messages above the debug level.
func (r *recorder) loud() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, l := range r.lines {
		if l["level"] != "DEBUG" {
			found = append(found, l["level"].(string)+" "+l["msg"].(string))
		}
	}
	return found
}
