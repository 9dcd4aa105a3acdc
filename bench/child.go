package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// childMain runs one case, and prints what it has seen.
func childMain(ctx context.Context) error {
	var t task
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &t); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	cfg.MaxConns = int32(t.Case.Workers) + 2
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	b, err := openBroker(t.Case.Broker)
	if err != nil {
		return err
	}
	if t.Profile != "" {
		f, err := os.Create(t.Profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	mt := newMeter(t)
	ctx, cancel := context.WithTimeout(ctx, caseLimit)
	defer cancel()
	go func() {
		select {
		case <-mt.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	w := &work{task: t, pool: pool, sql: newStatements(t.Schema), meter: mt}
	err = w.run(ctx, b)
	if !mt.complete() {
		return errors.Join(fmt.Errorf("%d of %d messages were settled", mt.settledSoFar(), t.Messages), err)
	}
	return json.NewEncoder(os.Stdout).Encode(mt.measurement())
}

// meter counts what is settled, and measures from when what is warming up is.
type meter struct {
	total, warm int
	done        chan struct{}

	mu                sync.Mutex
	settled           int
	began, ended      time.Time
	first             int // settled when it began
	memory, memoryEnd runtime.MemStats
	latencies         []time.Duration
	measuresLatency   bool
}

func newMeter(t task) *meter {
	return &meter{total: t.Messages, warm: t.Case.Warm, done: make(chan struct{}), measuresLatency: t.Case.Rate > 0}
}

// add notes messages whose effects are committed; bodies may be nil.
func (m *meter) add(n int, bodies func(i int) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.settled >= m.total {
		return
	}
	now := time.Now()
	if m.measuresLatency && m.settled > m.warm {
		for i := range n {
			m.latencies = append(m.latencies, now.Sub(publishedAt(bodies(i))))
		}
	}
	m.settled += n
	if m.began.IsZero() && m.settled >= m.warm {
		m.began, m.first = now, m.settled
		runtime.ReadMemStats(&m.memory)
	}
	if m.settled >= m.total {
		m.ended = now
		runtime.ReadMemStats(&m.memoryEnd)
		close(m.done)
	}
}

func (m *meter) complete() bool { return m.settledSoFar() >= m.total }

func (m *meter) settledSoFar() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.settled
}

func (m *meter) measurement() measurement {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := float64(m.settled - m.first)
	out := measurement{
		PerSecond:  n / m.ended.Sub(m.began).Seconds(),
		Allocs:     float64(m.memoryEnd.Mallocs-m.memory.Mallocs) / n,
		Bytes:      float64(m.memoryEnd.TotalAlloc-m.memory.TotalAlloc) / n,
		PeakMemory: peakMemory(),
	}
	if k := len(m.latencies); k > 0 {
		slices.Sort(m.latencies)
		out.P50 = float64(m.latencies[k/2].Microseconds()) / 1000
		out.P99 = float64(m.latencies[k*99/100].Microseconds()) / 1000
	}
	return out
}

// peakMemory is the largest resident set of this process, as Linux tells. That of
// getrusage would hold the parent's, too.
func peakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}
