package inbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/consumer"
)

// A session claims the next messages while the transaction before still ends: in
// the round trip of its commit, or better on a connection of its own, where the
// server does that while the commit waits for the disk. Their handlers run only
// when that commit is confirmed, so under READ COMMITTED they see what it did.

// gather asks for the next messages, once, and begins to claim them where there
// is a connection to spare.
func (s *session) gather(ctx context.Context) {
	if s.next == nil {
		return
	}
	s.ahead = newClaim(s.next())
	s.next = nil
	if s.ahead != nil && s.in.cfg.Isolation == pgx.ReadCommitted {
		s.claimApart(ctx, s.ahead)
	}
}

// claimApart sends the claim of c on another connection. It does nothing when
// that is not to be had at once: no claim is worth that a commit waits.
func (s *session) claimApart(ctx context.Context, c *claim) {
	stat := s.in.pool.Stat()
	if stat.AcquiredConns() >= stat.MaxConns()-1 { // the last one is for handlers
		return
	}
	ctx, cancel := s.spare.Context(context.WithoutCancel(ctx), spareTimeout)
	defer cancel()
	conn, err := s.in.pool.Acquire(ctx)
	if err != nil {
		return
	}
	t := newTrip(conn)
	t.add(s.in.sql.begin)
	s.addClaim(t, c)
	names, err := s.in.prepare(ctx, conn, t)
	if err != nil {
		conn.Release()
		return
	}
	pg := conn.Conn().PgConn()
	_ = pg.Conn().SetDeadline(time.Now().Add(s.in.cfg.ClaimTimeout))
	c.apart = &sentTrip{conn, t, t.start(context.Background(), pg, names)}
}

// spareTimeout limits the wait for a connection that is to spare.
const spareTimeout = 100 * time.Millisecond

// sentTrip is on its way, on a connection of its own.
type sentTrip struct {
	conn     *pgxpool.Conn
	trip     *trip
	pipeline *pgconn.Pipeline
}

// finish reads the answers, within the limit.
func (t *sentTrip) finish(limit time.Duration) error {
	socket := t.conn.Conn().PgConn().Conn()
	_ = socket.SetDeadline(time.Now().Add(limit))
	defer func() { _ = socket.SetDeadline(time.Time{}) }()
	return t.trip.finish(t.pipeline)
}

// adopt makes the connection of c the session's, when it has one of its own, and
// learns what became of the claim.
func (s *session) adopt(ctx context.Context, c *claim) {
	t := c.apart
	if t == nil {
		return
	}
	c.apart = nil
	s.release()
	s.conn = t.conn
	c.err = s.claimFailed(ctx, t.finish(s.in.cfg.ClaimTimeout))
}

// drop undoes what was claimed ahead.
func (s *session) drop(ctx context.Context) {
	c := s.ahead
	s.ahead = nil
	if c != nil {
		s.adopt(ctx, c)
	}
	s.rollback(ctx)
}

var _ consumer.Session[pgx.Tx] = (*session)(nil)
