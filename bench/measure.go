package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// childVariable makes a child of this program, and holds its task.
const childVariable = "ACKAFTER_BENCH_CHILD"

func isChild() bool { return os.Getenv(childVariable) != "" }

// task is what a child is to do.
type task struct {
	Case     benchCase
	Queue    string
	Schema   string
	Messages int // that are delivered, all in all
	Profile  string
}

// measurement is what a child has seen.
type measurement struct {
	PerSecond  float64
	P50, P99   float64 // milliseconds from publish to commit
	Allocs     float64 // per message
	Bytes      float64 // per message
	PeakMemory int64   // of the process, bytes
}

func (m measurement) String() string {
	return fmt.Sprintf("%8.0f msg/s  p50 %6.1f ms  p99 %6.1f ms  %5.0f allocs  %6.0f B  %4d MiB",
		m.PerSecond, m.P50, m.P99, m.Allocs, m.Bytes, m.PeakMemory>>20)
}

const (
	// caseLimit is more than a case may take, but for the old rows.
	caseLimit = 3 * time.Minute
	// prepareLimit is more than 10 million old rows take.
	prepareLimit = 15 * time.Minute
	cleanupLimit = time.Minute
)

// measure runs a case in a process of its own.
func measure(ctx context.Context, db *database, b broker, c benchCase, o options) (m measurement, err error) {
	all, want := orders(c)
	preparing, prepared := context.WithTimeout(ctx, prepareLimit)
	defer prepared()
	schema, err := db.prepare(preparing, c, all)
	defer func() {
		err = errors.Join(err, cleanup(ctx, func(ctx context.Context) error { return db.drop(ctx, schema) }))
	}()
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, caseLimit)
	defer cancel()
	queue := "bench-" + strings.ToLower(rand.Text()[:10])
	if err := b.create(ctx, queue, c.Workers); err != nil {
		return m, err
	}
	defer func() {
		err = errors.Join(err, cleanup(ctx, func(ctx context.Context) error { return b.delete(ctx, queue) }))
	}()
	if c.Rate == 0 {
		if err := b.publish(ctx, queue, all); err != nil {
			return m, err
		}
	}
	child := startChild(ctx, task{c, queue, schema, len(all), o.profile})
	if c.Rate > 0 {
		if err = publishSlowly(ctx, b, queue, all, c.Rate); err != nil {
			cancel() // which ends the child
		}
	}
	m, childErr := child()
	if err := errors.Join(err, childErr); err != nil {
		return m, err
	}
	if c.Kind == "broker" {
		return m, nil
	}
	return m, db.audit(ctx, schema, want)
}

// cleanup runs f though ctx may have ended, within a limit of its own.
func cleanup(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	return f(ctx)
}

// startChild returns a function that waits for the child.
func startChild(ctx context.Context, t task) func() (measurement, error) {
	self, err := os.Executable()
	spec, marshalErr := json.Marshal(t)
	if err := errors.Join(err, marshalErr); err != nil {
		return func() (measurement, error) { return measurement{}, err }
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(spec))
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	started := cmd.Start()
	return func() (m measurement, err error) {
		if started != nil {
			return m, started
		}
		if err := cmd.Wait(); err != nil {
			return m, fmt.Errorf("%w: %s", err, problems.String())
		}
		return m, json.Unmarshal(out.Bytes(), &m)
	}
}

// publishSlowly publishes a few at a time, rate of them a second.
func publishSlowly(ctx context.Context, b broker, queue string, all []order, rate int) error {
	const step = 20 * time.Millisecond
	ticks := time.NewTicker(step)
	defer ticks.Stop()
	n := max(1, rate*int(step)/int(time.Second))
	p, err := openPublisher(b, queue)
	if err != nil {
		return err
	}
	defer p.close()
	for len(all) > 0 {
		n := min(n, len(all))
		for i := range all[:n] {
			all[i].At = time.Now().UnixNano()
		}
		if err := p.publish(ctx, all[:n]); err != nil {
			return err
		}
		all = all[n:]
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
