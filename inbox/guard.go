package inbox

import (
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// guard is what a handler's transaction, its savepoints and its rows share. A
// connection is not made for two goroutines, and once the handler has returned
// it belongs to the session again; so everything that a handler, or a goroutine
// which it left behind, does on the connection is counted.
type guard struct {
	mu     sync.Mutex
	ended  bool          // the handler has returned
	active int           // how many are on the connection
	idle   chan struct{} // closed when none is any more; nil while nobody waits
	err    error         // the last error of a statement, for a handler that swallows it
	looks  bool          // as if a statement controlled the transaction

	savepoints int // set so far
}

func (g *guard) nextSavepoint() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.savepoints++
	return "ackafter_" + strconv.Itoa(g.savepoints)
}

// enter returns pgx.ErrTxClosed to whoever outlives the handler. Otherwise
// leave must follow.
func (g *guard) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return pgx.ErrTxClosed
	}
	g.active++
	return nil
}

// leave remembers what a statement returned, and passes it on.
func (g *guard) leave(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.err = err
	}
	if g.active--; g.active == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
	return err
}

func (g *guard) do(f func() error) error {
	if err := g.enter(); err != nil {
		return err
	}
	return g.leave(f())
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

// look looks at SQL on its way to the server.
func (g *guard) look(sql string, args []any) {
	if !controlsTransaction(sql, args) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looks = true
}

// suspect tells whether SQL was sent that may have ended the transaction, or
// changed its characteristics.
func (g *guard) suspect() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.looks
}

func (g *guard) lastError() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
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
