package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Attribute names of OpenTelemetry's semantic conventions for messaging, and
// our own where those have none.
const (
	attrSystem      = "messaging.system"
	attrSubscriber  = "messaging.consumer.group.name"
	attrDestination = "messaging.destination.name"
	attrID          = "messaging.message.id"
	attrStream      = "ackafter.stream"
	attrPosition    = "ackafter.position"
	attrAttempt     = "ackafter.attempt"
	attrVerdict     = "ackafter.verdict"
	attrError       = "error"
	attrStack       = "exception.stacktrace"
)

// messageLog writes what a runner has to say. Each problem is one line.
type messageLog struct{ *slog.Logger }

func newMessageLog(logger *slog.Logger, subscriber string, source Source) messageLog {
	logger = logger.With(attrSubscriber, subscriber)
	if s, ok := source.(SystemNamer); ok {
		logger = logger.With(attrSystem, s.System())
	}
	return messageLog{logger}
}

func (l messageLog) stream(name string) messageLog {
	return messageLog{l.With(attrStream, name)}
}

func (l messageLog) started(ctx context.Context, workers, transactions int) {
	l.InfoContext(ctx, "consumer started", "ackafter.workers", workers, "ackafter.max_transactions", transactions)
}

func (l messageLog) stopped(ctx context.Context, err error) {
	if err != nil {
		l.ErrorContext(ctx, "consumer stopped", attrError, err)
		return
	}
	l.InfoContext(ctx, "consumer stopped")
}

func (l messageLog) warn(ctx context.Context, problem string) {
	l.WarnContext(ctx, problem)
}

func (l messageLog) problem(ctx context.Context, what string, err error) {
	l.WarnContext(ctx, what, attrError, err)
}

func (l messageLog) paused(err error) {
	l.Warn("consumer paused: what it needs is away; nothing is lost, and no attempt is counted", attrError, err)
}

func (l messageLog) resumed(away time.Duration) {
	l.Info("consumer resumed: what it needs is back", "ackafter.paused_for", away.Round(time.Millisecond))
}

// settled is written for every message, so it must cost nothing unless
// somebody wants to read it.
func (l messageLog) settled(ctx context.Context, ms []*Message, verdicts []Verdict, ackErr error) {
	if !l.Enabled(ctx, slog.LevelDebug) {
		return
	}
	for i, m := range ms {
		text, attrs := "message settled", append(messageAttrs(m), slog.String(attrVerdict, verdicts[i].String()))
		if ackErr != nil {
			// Not worth more: the inbox makes a duplicate of the redelivery.
			text, attrs = "message settled, and its acknowledgement lost", append(attrs, slog.Any(attrError, ackErr))
		}
		l.LogAttrs(ctx, slog.LevelDebug, text, attrs...)
	}
}

func (l messageLog) split(ctx context.Context, n int, err error) {
	l.LogAttrs(ctx, slog.LevelDebug, "batch rolled back, to be handled in smaller ones",
		slog.Int("messaging.batch.message_count", n), slog.Any(attrError, err))
}

func (l messageLog) failed(ctx context.Context, m *Message, err error, wait time.Duration) {
	attrs := append(messageAttrs(m), slog.Any(attrError, err), slog.Duration("ackafter.retry_in", wait))
	var p *PanicError
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String(attrStack, string(p.Stack)))
	}
	l.LogAttrs(ctx, slog.LevelWarn, "attempt failed", attrs...)
}

// setAside says why, and where to; err is the last attempt's, or nil.
func (l messageLog) setAside(ctx context.Context, f Failure, err error, dead bool) {
	attrs := append(messageAttrs(f.Message), slog.String("ackafter.reason", string(f.Reason)), slog.String(attrError, f.Error))
	var p *PanicError
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String(attrStack, string(p.Stack)))
	}
	if f.Reason == ReasonBehind {
		l.LogAttrs(ctx, slog.LevelDebug, "message set aside behind an earlier one", attrs...)
		return
	}
	if dead {
		l.LogAttrs(ctx, slog.LevelError, "message set aside for good, in the dead letters", attrs...)
		return
	}
	if f.ForGood() {
		l.LogAttrs(ctx, slog.LevelError, "message set aside for good: somebody has to decide", attrs...)
		return
	}
	l.LogAttrs(ctx, slog.LevelWarn, "message set aside, to be tried again later", append(attrs, slog.Duration("ackafter.retry_in", f.RetryIn))...)
}

// unstored is written for each try, which are minutes apart.
func (l messageLog) unstored(ctx context.Context, f Failure, err error, wait time.Duration) {
	attrs := append(messageAttrs(f.Message), slog.String("ackafter.reason", string(f.Reason)),
		slog.Any(attrError, err), slog.Duration("ackafter.retry_in", wait))
	l.LogAttrs(ctx, slog.LevelError, "message can be neither processed nor set aside: it is kept unacknowledged until somebody removes the cause", attrs...)
}

func (l messageLog) retried(ctx context.Context, f *Failure) {
	l.LogAttrs(ctx, slog.LevelInfo, "message processed that had been set aside", messageAttrs(f.Message)...)
}

func (l messageLog) contended(ctx context.Context, m *Message, err error) {
	if l.Enabled(ctx, slog.LevelDebug) {
		l.message(ctx, m, "attempt lost to another transaction", err)
	}
}

func (l messageLog) message(ctx context.Context, m *Message, what string, err error) {
	l.LogAttrs(ctx, slog.LevelDebug, what, append(messageAttrs(m), slog.Any(attrError, err))...)
}

func messageAttrs(m *Message) []slog.Attr {
	return []slog.Attr{
		slog.String(attrDestination, m.Topic),
		slog.String(attrID, m.ID),
		slog.String(attrPosition, m.Position),
		slog.Int(attrAttempt, m.Attempt),
	}
}
