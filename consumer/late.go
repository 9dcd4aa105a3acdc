package consumer

import (
	"errors"
	"fmt"
	"time"
)

var errLate = errors.New("the message is late")

// late returns an error for a new message that is too old to be called new: its
// row may have been there once. It is asked only behind the claim, so that one
// whose row is still there is a duplicate.
func (r *Runner[Tx]) late(m *Message) error {
	if r.cfg.Horizon == 0 || m.Time.IsZero() {
		return nil
	}
	if age := time.Since(m.Time); age > r.cfg.Horizon {
		return fmt.Errorf("%w: it is %v old, and may have been processed longer ago than anyone remembers (Config.Horizon is %v): "+
			"look whether it was, and then retry it or let it go", errLate, age.Round(time.Second), r.cfg.Horizon)
	}
	return nil
}
