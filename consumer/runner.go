package consumer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Runner reads a Source and lets each message take effect once, through an
// Inbox. Its methods are safe for concurrent use.
type Runner[Tx any] struct {
	cfg          Config[Tx]
	handler      Handler[Tx] // with the middleware around it
	policy       retryPolicy
	failures     FailureInbox[Tx] // nil when the inbox is none
	order        OrderInbox[Tx]   // nil without Config.KeepOrder
	crashes      *crashWatch
	log          messageLog
	gate         gate
	standstill   standstill
	unstored     unstoredSet
	transactions *semaphore
	streams      streamSet[Tx]
	lifecycle    lifecycle
	commits      atomic.Int64 // transactions that are known to be committed

	mu    sync.Mutex
	abort context.CancelFunc // ends the run; nil before it
	cause error              // the first reason to abort
	ran   atomic.Bool
}

// New returns a runner for cfg. Its error holds every mistake in cfg at once,
// each naming its field.
func New[Tx any](cfg Config[Tx]) (*Runner[Tx], error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("consumer.Config:\n%w", err)
	}
	if l, ok := cfg.Inbox.(TransactionLimiter); ok && cfg.MaxTransactions == 0 {
		cfg.MaxTransactions = l.MaxTransactions()
	}
	r := &Runner[Tx]{
		cfg:          cfg,
		handler:      cfg.Handler,
		policy:       newRetryPolicy(cfg),
		log:          newMessageLog(cfg.Logger, cfg.Subscriber, cfg.Source),
		gate:         gate{backoff: cfg.Probe},
		transactions: newSemaphore(cfg.MaxTransactions),
		lifecycle:    lifecycle{since: time.Now()},
	}
	r.crashes = newCrashWatch(cfg.Inbox, rand.Text(), cfg.CrashLimit)
	if cfg.KeepOrder {
		r.order = cfg.Inbox.(OrderInbox[Tx])
	}
	if r.failures, _ = cfg.Inbox.(FailureInbox[Tx]); r.failures == nil {
		r.policy.later = nil
	}
	if cfg.Batch != nil {
		r.handler = batchOfOne[Tx]{cfg.Batch}
	}
	for i := len(cfg.Middleware) - 1; i >= 0; i-- {
		if r.handler = cfg.Middleware[i](r.handler); isNil(r.handler) {
			return nil, fmt.Errorf("consumer.Config:\nMiddleware[%d]: returned nil", i)
		}
	}
	return r, nil
}

// Run checks database and broker, and then handles messages until ctx ends.
// Then it lets the handlers in flight finish, commits, acknowledges, closes
// the subscription and returns nil; what was not begun is left to be
// delivered again. It returns an error when the checks fail, and when it
// cannot go on: a handler that does not return, say. With an inbox that is no
// FailureInbox, and without a DeadLetter, a message without a usable id, one
// that is too large, a mismatch and one that failed for good (Permanent) end it,
// too. Such a message is not acknowledged; errors.As finds it as a
// *MessageError.
//
// Once Run has started, neither database nor broker being away ends it.
//
// Run may be called once.
func (r *Runner[Tx]) Run(ctx context.Context) error {
	if r.ran.Swap(true) {
		return errors.New("consumer: Run was called before; make a new Runner with New")
	}
	err := r.run(ctx)
	r.closeDeadLetter(ctx)
	r.lifecycle.stop(err)
	return err
}

func (r *Runner[Tx]) run(ctx context.Context) error {
	if err := r.check(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("consumer: subscriber %q cannot start: %w", r.cfg.Subscriber, err)
	}
	run, abort := context.WithCancel(ctx)
	defer abort()
	defer context.AfterFunc(run, func() { r.lifecycle.enter(Draining) })()
	r.mu.Lock()
	r.abort = abort
	r.mu.Unlock()

	r.lifecycle.enter(Running)
	r.log.started(ctx, r.cfg.Workers, r.cfg.MaxTransactions)
	var retries sync.WaitGroup
	if r.failures != nil && (r.cfg.DeadLetter == nil || len(r.policy.later) > 0) {
		retries.Go(func() { _ = r.later(run, r.failures) })
	}
	err := r.cfg.Source.Run(run, r.serve)
	abort() // where the source gave up by itself
	retries.Wait()
	err = r.outcome(ctx, err)
	r.log.stopped(ctx, err)
	return err
}

// outcome returns why the run ended, nil when it was asked to.
func (r *Runner[Tx]) outcome(ctx context.Context, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil {
		err = r.cause // what the source returned follows from it
	} else if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("consumer: subscriber %q: %w", r.cfg.Subscriber, err)
	}
	return nil
}

// fail ends the run because of err, and returns it.
func (r *Runner[Tx]) fail(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause == nil {
		r.cause = err
	}
	r.abort()
	return err
}

// prepare fills in what the runner adds to a delivered message. A panic in the
// user's functions is an error: the same message would bring it again.
func (r *Runner[Tx]) prepare(t *task) (err error) {
	m := t.m
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("in Config.MessageID or Config.Hash: %w", &PanicError{Value: v, Stack: debug.Stack()})
		}
	}()
	id, err := r.cfg.MessageID(m)
	if err == nil {
		err = CheckID(id)
	}
	if err != nil && !errors.Is(err, ErrNoID) {
		err = fmt.Errorf("%w: %w", ErrNoID, err)
	}
	if err != nil {
		return err
	}
	m.ID, m.Attempt, m.Hash = id, 1, t.sum.of(r.cfg.Hash(m))
	return nil
}

// check asks inbox and source what would go wrong.
func (r *Runner[Tx]) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.StartTimeout)
	defer cancel()
	plan := Plan{
		Subscriber:     r.cfg.Subscriber,
		Transactions:   r.cfg.MaxTransactions,
		Workers:        r.cfg.Workers,
		MaxBatch:       r.cfg.MaxBatch,
		HandlerTimeout: r.cfg.HandlerTimeout,
		DrainTimeout:   r.cfg.DrainTimeout,
		Discards:       r.cfg.DeadLetter != nil && r.failures != nil && len(r.policy.later) > 0,
		Warn:           func(problem string) { r.log.warn(ctx, problem) },
	}
	for _, part := range []any{r.cfg.Inbox, r.cfg.Source, r.cfg.DeadLetter} {
		if c, ok := part.(Checker); ok {
			if err := r.checkPart(ctx, c, plan); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkPart tries again while what c needs is away.
func (r *Runner[Tx]) checkPart(ctx context.Context, c Checker, plan Plan) error {
	for tries := 1; ; tries++ {
		err := c.Check(ctx, plan)
		if !errors.Is(err, ErrOutage) && (err == nil || ctx.Err() == nil) {
			return err
		}
		if tries == 1 {
			r.log.problem(ctx, "waiting for what is away, to start", err)
		}
		r.lifecycle.waitFor(err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up after %v (Config.StartTimeout): %w", r.cfg.StartTimeout, err)
		case <-time.After(r.cfg.Probe.wait(tries)):
		}
	}
}

// databaseAnswered ends a pause, if the attempt was the probe.
func (r *Runner[Tx]) databaseAnswered(p pass) {
	if away, news := r.gate.open(p); news {
		r.log.resumed(away)
	}
}

// databaseWorks notes an attempt that went through.
func (r *Runner[Tx]) databaseWorks(p pass) {
	r.databaseAnswered(p)
	r.gate.recovered()
}

// databaseAway begins a pause, or goes on with it.
func (r *Runner[Tx]) databaseAway(err error, p pass) {
	if r.gate.close(err, p) {
		r.log.paused(err)
	}
}
