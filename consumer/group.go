package consumer

import (
	"context"
	"errors"
	"sync"
)

// Runnable is what RunAll runs; every *Runner is one.
type Runnable interface {
	Run(ctx context.Context) error
}

// RunAll runs several runners until ctx ends, and returns when all have
// returned. When one of them fails the others are stopped as if ctx had ended,
// so that a process does not go on with half of its work; the errors are
// joined.
func RunAll(ctx context.Context, runners ...Runnable) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(runners))
	var all sync.WaitGroup
	for i, r := range runners {
		all.Go(func() {
			if errs[i] = r.Run(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
