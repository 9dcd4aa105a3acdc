package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// regain makes the connection the session's again. A statement that is still
// under way, in a goroutine which the handler left behind, is cancelled, or its
// locks would stay; then it loses its socket; and if even that does not end it,
// the connection is left to it.
func (s *session) regain(g *guard) error {
	idle := g.end()
	if idle == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.in.cfg.CommitTimeout)
	defer cancel()
	ended := s.cancel(ctx, idle, 20)
	if !ended {
		_ = s.pg().Conn().Close()
		ended = closedWithin(idle, s.in.cfg.CommitTimeout)
	}
	if ended {
		s.discard(ctx)
	} else {
		s.conn.Hijack()
		s.conn = nil
	}
	return ErrTransactionBusy
}

// cancel asks the server to end what runs on the connection, several times, since
// a request that comes before its statement has no effect. It returns true as
// soon as idle is closed; a nil idle never is.
func (s *session) cancel(ctx context.Context, idle <-chan struct{}, tries int) bool {
	for range tries {
		_ = s.pg().CancelRequest(ctx)
		if closedWithin(idle, cancelWait) {
			return true
		}
	}
	return false
}

// cancelWait is how long a cancelled statement may take to end.
const cancelWait = 100 * time.Millisecond

func (s *session) pg() *pgconn.PgConn { return s.conn.Conn().PgConn() }

// roleKey is where a connection keeps the role that it began with.
const roleKey = "ackafter role"

// addAskRole asks for that, once per connection.
func (s *session) addAskRole(t *trip) {
	known := s.pg().CustomData()
	if known[roleKey] == nil {
		t.add("select pg_catalog.current_setting('role')").row = func(values [][]byte) { known[roleKey] = string(values[0]) }
	}
}

// addRole makes it the role of the rest of the transaction.
func (s *session) addRole(t *trip) {
	if role, ok := s.pg().CustomData()[roleKey].(string); ok {
		t.add(s.in.sql.role, role)
	}
}

// rollback ends whatever is open, so that the connection can be used again. A
// connection on which that fails is closed, and then the server rolls back.
func (s *session) rollback(ctx context.Context) {
	s.ahead = nil
	if s.conn == nil {
		return
	}
	if !s.pg().IsClosed() && s.pg().TxStatus() == 'I' && !s.pg().IsBusy() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.in.cfg.CommitTimeout)
	defer cancel()
	if _, err := s.conn.Exec(ctx, "rollback"); err != nil {
		s.discard(ctx)
	}
}

// discard closes the connection, so that nobody gets it again. A query whose
// rows were left unread may still be running, and a server that is busy does not
// notice a closed connection; so it is cancelled, or its locks would stay.
func (s *session) discard(ctx context.Context) {
	if s.conn != nil {
		if pg := s.pg(); !pg.IsClosed() && pg.IsBusy() {
			s.cancel(ctx, nil, 2)
		}
		_ = s.conn.Conn().Close(ctx)
	}
	s.release()
}

// release gives the connection back to the pool, which drops a closed one.
func (s *session) release() {
	if s.conn != nil {
		s.conn.Release()
	}
	s.conn = nil
}
