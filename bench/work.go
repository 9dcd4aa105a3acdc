package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// work is what a child does.
type work struct {
	task
	pool  *pgxpool.Pool
	sql   statements
	meter *meter
}

// run returns once the meter is done, which ends ctx.
func (w *work) run(ctx context.Context, b broker) error {
	switch w.Case.Kind {
	case "ours":
		return w.ours(ctx, b)
	case "watermill":
		return b.watermill(ctx, w.Queue, w.Case.Workers, func(ctx context.Context, body []byte) error {
			err := w.one(ctx, body)
			if err == nil {
				w.meter.add(1, nil)
			}
			return err
		})
	}
	feeds, err := b.feeds(ctx, w.Queue, w.Case.Workers)
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	errs := make([]error, len(feeds))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, f := range feeds {
		workers.Go(func() {
			defer cancel() // a worker that has failed ends the others
			errs[i] = w.loop(ctx, f)
		})
	}
	workers.Wait()
	for _, f := range feeds {
		f.close()
	}
	return errors.Join(errs...)
}

// loop is a worker by hand.
func (w *work) loop(ctx context.Context, f feed) error {
	limit := max(1, w.Case.MaxBatch)
	if w.Case.Kind == "broker" {
		limit = hundred
	}
	var ds []delivery
	for {
		var err error
		if ds, err = next(ctx, f, limit, ds[:0]); err != nil {
			return err
		}
		switch w.Case.Kind {
		case "hand":
			err = w.one(ctx, ds[0].body)
		case "group":
			err = w.together(ctx, ds)
		}
		if err == nil {
			err = f.ack(ctx, ds[len(ds)-1], len(ds) > 1)
		}
		if err != nil {
			return err
		}
		w.meter.add(len(ds), nil)
	}
}

// one is the loop that people write: four round trips.
func (w *work) one(ctx context.Context, body []byte) error {
	o, err := decode(body)
	if err != nil {
		return err
	}
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	tag, err := tx.Exec(ctx, w.sql.insert, subscriber, o.ID)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	if _, err := tx.Exec(ctx, w.sql.update, o.Account, o.Amount); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// together is group commit by hand: two round trips and one for each statement,
// or two in all.
func (w *work) together(ctx context.Context, ds []delivery) (err error) {
	os := make([]order, len(ds))
	ids := make([]string, len(ds))
	for i, d := range ds {
		var err error
		if os[i], err = decode(d.body); err != nil {
			return err
		}
		ids[i] = os[i].ID
	}
	conn, err := w.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { // a connection in a transaction is not for the next one
		if err != nil {
			_, _ = conn.Exec(context.WithoutCancel(ctx), "rollback")
		}
		conn.Release()
	}()
	fresh, err := w.claim(ctx, conn, ids)
	if err != nil {
		return err
	}
	// In one order, or batches deadlock: a loop by hand knows what its statements lock.
	slices.SortStableFunc(os, func(a, b order) int { return cmp.Compare(a.Account, b.Account) })
	var statements pgx.Batch
	for _, o := range os {
		switch {
		case !fresh[o.ID]:
			continue
		case w.Case.Queued:
			statements.Queue(w.sql.update, o.Account, o.Amount)
		default:
			if _, err = conn.Exec(ctx, w.sql.update, o.Account, o.Amount); err != nil {
				return err
			}
		}
		delete(fresh, o.ID) // a second one with the id is a duplicate
	}
	if !w.Case.Queued {
		_, err = conn.Exec(ctx, "commit")
		return err
	}
	statements.Queue("commit")
	err = conn.SendBatch(ctx, &statements).Close()
	return err
}

func (w *work) claim(ctx context.Context, conn *pgxpool.Conn, ids []string) (map[string]bool, error) {
	var b pgx.Batch
	b.Queue("begin")
	b.Queue(w.sql.insertAll, subscriber, ids)
	results := conn.SendBatch(ctx, &b)
	if _, err := results.Exec(); err != nil {
		return nil, fmt.Errorf("begin: %w", errors.Join(err, results.Close()))
	}
	rows, _ := results.Query()
	mine, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err := errors.Join(err, results.Close()); err != nil {
		return nil, err
	}
	fresh := make(map[string]bool, len(mine))
	for _, id := range mine {
		fresh[id] = true
	}
	return fresh, nil
}
