package inbox

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ackafter/ackafter/consumer"
)

// guard is what a handler's transaction, its savepoints and its rows share. A
// connection is not made for two goroutines, and once the handler has returned
// it belongs to the session again; so everything that a handler, or a goroutine
// which it left behind, does on the connection is counted.
type guard struct {
	pg *pgconn.PgConn // to be looked at only while nobody is on the connection

	mu     sync.Mutex
	ended  bool          // the handler has returned
	active int           // how many are on the connection
	idle   chan struct{} // closed when none is any more; nil while nobody waits
	err    error         // the last error of a statement, for a handler that swallows it
	lost   bool          // the connection, by err
	looks  bool          // as if a statement controlled the transaction

	several bool              // messages share the transaction
	message *consumer.Message // whose turn it is in a batch; nil outside
	broken  error             // why the transaction is of no more use

	savepoints int // set so far
	queued     []queuedStatement
	txs        []handlerTx // not handed out yet
}

// newTx allocates several at once.
func (g *guard) newTx() *handlerTx {
	if len(g.txs) == 0 {
		g.txs = make([]handlerTx, 16)
	}
	tx := &g.txs[0]
	g.txs = g.txs[1:]
	return tx
}

func (g *guard) nextSavepoint() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.savepoints++
	return "ackafter_" + strconv.Itoa(g.savepoints)
}

// enter returns pgx.ErrTxClosed to whoever outlives the handler of m, and
// ErrTransactionEnded where a statement would commit by itself. Otherwise leave
// must follow.
func (g *guard) enter(m *consumer.Message) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended || g.message != m:
		return pgx.ErrTxClosed
	case g.broken != nil:
		return g.broken
	case g.active == 0 && !g.pg.IsClosed() && g.pg.TxStatus() == 'I':
		g.broken = blamed(m, ErrTransactionEnded)
		return g.broken
	}
	g.active++
	return nil
}

func (g *guard) inUse() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.active > 0
}

// breaks refuses all further use with err, and keeps what was done from being
// committed.
func (g *guard) breaks(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken == nil {
		g.broken = err
	}
}

// turn lets the handler of m use the transaction, and nobody else. It blames the
// one before for the state in which that has left it.
func (g *guard) turn(m *consumer.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.message != nil && g.broken == nil {
		g.broken = consumer.Blame(g.message, left(g.active, g.pg, g.err))
	}
	g.message = m
}

// blamed is err as the fault of m, which is nil outside of a batch.
func blamed(m *consumer.Message, err error) error {
	if m == nil {
		return err
	}
	return consumer.Blame(m, err)
}

// left returns what a handler that returned nil did wrong to its transaction.
// err is the last error of its statements.
func left(active int, pg *pgconn.PgConn, err error) error {
	switch {
	case active > 0 || pg.IsBusy():
		return ErrTransactionBusy
	case pg.IsClosed() && err == nil:
		return fmt.Errorf("%w: conn closed", ErrSQLFailed)
	case !pg.IsClosed() && pg.TxStatus() == 'I':
		return ErrTransactionEnded
	case (pg.IsClosed() || pg.TxStatus() == 'E') && err != nil:
		return fmt.Errorf("%w: %w", ErrSQLFailed, err)
	case pg.TxStatus() == 'E':
		return ErrSQLFailed
	}
	return nil
}

// leave remembers what a statement returned, and passes it on. Of a connection
// that is lost it keeps why: whoever swallows that and goes on learns only that it
// is closed.
func (g *guard) leave(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && !g.lost {
		g.err = err
	}
	g.active--
	if g.active > 0 {
		return err
	}
	g.lost = g.err != nil && g.pg.IsClosed()
	if g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
	return err
}

func (g *guard) do(m *consumer.Message, f func() error) (err error) {
	if err := g.enter(m); err != nil {
		return err
	}
	defer func() { _ = g.leave(err) }()
	return f()
}

// end refuses all further use. It returns nil when the connection is free, and
// otherwise a channel that is closed once it is.
func (g *guard) end() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	if g.active == 0 {
		return nil
	}
	g.idle = make(chan struct{})
	return g.idle
}

// errAlone is for SQL that, in a batch, might commit or undo what is not its own.
var errAlone = errors.New("inbox: SQL with a word that may commit or roll back: the message is handled by itself")

// look looks at SQL on its way to the server. One that would end the transaction
// is refused, and the transaction with it. One that might commit or roll back in a
// way that only the server can see is refused in a batch, whose other messages
// would count as processed then, or be processed twice.
func (g *guard) look(m *consumer.Message, sql string, args []any) error {
	if !controlsTransaction(sql, args) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks = true
	err := error(nil)
	switch {
	case endsTransaction(sql):
		err = ErrTransactionEnded
	case g.several && reachesOthers(sql, args):
		err = errAlone
	default:
		return nil
	}
	err = blamed(m, err)
	if g.broken == nil {
		g.broken = err
	}
	return err
}

// suspect tells whether SQL was sent that may have ended the transaction, or
// changed its characteristics.
func (g *guard) suspect() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.looks
}

// lastError returns the last error of a statement, and why the transaction is of
// no more use, if it is not.
func (g *guard) lastError() (last, broken error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err, g.broken
}

// closedWithin waits for c.
func closedWithin(c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
