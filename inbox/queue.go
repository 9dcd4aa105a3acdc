package inbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackafter/ackafter/consumer"
)

// queuedStatement waits to be sent with others in one round trip.
type queuedStatement struct {
	m    *consumer.Message // whose handler queued it; nil outside of a batch
	sql  string
	args []any
}

var errNotOurs = errors.New("inbox: Queue needs the transaction that the handler was given")

// Queue is tx.Exec for a statement whose result the handler does not need: it is
// sent later, with what the handlers of the other messages of the batch have
// queued, in one round trip before the commit. With Config.MaxBatch above 1
// that saves most of what a handler costs; with 1 it saves nothing.
//
// Statements run in the order in which they were queued, and before any that
// tx is given otherwise, so that a query sees what was queued before it. The
// error of a statement is that of the message whose handler queued it, as if
// the handler had returned it; the handler itself does not see it. args must
// not be changed afterwards.
//
// tx is what the handler got, or a savepoint in it. Queue returns an error when
// it is anything else, or the handler has returned; return that.
func Queue(tx pgx.Tx, sql string, args ...any) error {
	t, ok := tx.(*handlerTx)
	if !ok {
		return errNotOurs
	}
	if t.ended.Load() {
		return pgx.ErrTxClosed
	}
	if err := t.guard.look(t.m, sql, args); err != nil {
		return err
	}
	if err := t.guard.enter(t.m); err != nil {
		return err
	}
	t.guard.queue(queuedStatement{t.m, sql, args})
	return t.guard.leave(nil)
}

// Flush implements consumer.BatchTx.
func (t *handlerTx) Flush(ctx context.Context) (err error) {
	t.guard.turn(nil)
	if t.guard.inUse() {
		return ErrTransactionBusy
	}
	if err := t.guard.enter(nil); err != nil {
		return err
	}
	defer func() { _ = t.guard.leave(err) }()
	return t.guard.flush(ctx, t.conn)
}

func (g *guard) queue(s queuedStatement) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queued = append(g.queued, s)
}

func (g *guard) unqueue() []queuedStatement {
	g.mu.Lock()
	defer g.mu.Unlock()
	queued := g.queued
	g.queued = nil
	return queued
}

// flush sends what is queued. The caller has entered. After an error the
// transaction is of no more use, even if the server never saw the statements.
func (g *guard) flush(ctx context.Context, conn *pgx.Conn) error {
	queued := g.unqueue()
	if len(queued) == 0 {
		return nil
	}
	err := sendQueued(ctx, conn, queued)
	if err == nil && conn.PgConn().TxStatus() == 'I' {
		err = ErrTransactionEnded // and what follows would commit by itself
	}
	if err != nil {
		g.breaks(err)
	}
	return err
}

func sendQueued(ctx context.Context, conn *pgx.Conn, queued []queuedStatement) error {
	b := pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, len(queued))}
	for _, s := range queued {
		b.Queue(s.sql, s.args...)
	}
	results := conn.SendBatch(ctx, &b)
	for _, s := range queued {
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			// What is wrapped was found before anything was sent, and may be
			// another statement's.
			if _, ran := err.(*pgconn.PgError); ran && s.m != nil {
				return consumer.Blame(s.m, err)
			}
			return err
		}
	}
	return results.Close()
}
