package inbox

import (
	"context"
	"slices"
	"sync"
)

// owed are the attempts whose end could not be stored, because the database went
// away under them. They have not ended their process, so they are to be taken
// back as soon as the database is there: else an outage would look like a crash.
type owed struct {
	mu    sync.Mutex
	undos []owedUndo
}

type owedUndo struct{ subscriber, id string }

func (o *owed) add(u owedUndo) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.undos = append(o.undos, u)
}

// take returns all, which are then the caller's.
func (o *owed) take() []owedUndo {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.undos
	o.undos = nil
	return slices.Clone(all)
}

// payOwed takes back what is owed, before anything else is begun. It waits for
// nobody: what another worker has in its hands stays owed.
func (s *session) payOwed(ctx context.Context) error {
	all := s.in.owed.take()
	for i, u := range all {
		left, err := s.pay(ctx, u)
		if left {
			s.in.owed.add(u)
		}
		if err != nil {
			for _, left := range all[i:] {
				s.in.owed.add(left)
			}
			return err
		}
	}
	return nil
}

// pay tells whether u is still owed.
func (s *session) pay(ctx context.Context, u owedUndo) (left bool, err error) {
	err = s.briefly(ctx, func() error {
		tag, err := s.conn.Exec(ctx, s.in.failed.undoFree, u.subscriber, u.id)
		if err == nil && tag.RowsAffected() == 0 {
			err = s.conn.QueryRow(ctx, s.in.failed.unfinished, u.subscriber, u.id).Scan(&left)
		}
		return err
	})
	if err == nil {
		_, err = s.conn.Exec(ctx, s.in.sql.commit)
	}
	return left, err
}
