package consumer

import (
	"context"
	"errors"
)

// OrderInbox is what an Inbox implements that can keep the order of a key's
// messages behind one that was set aside; see Config.KeepOrder.
type OrderInbox[Tx any] interface {
	FailureInbox[Tx]
	// Behind tells, within the transaction of a message, whether an earlier one
	// with its key is set aside. m is new, or is set aside itself.
	Behind(ctx context.Context, tx Tx, subscriber string, m *Message) (bool, error)
}

var errBehind = errors.New("an earlier message of the key is set aside (Config.KeepOrder)")

// behind returns errBehind for a message that must not run yet.
func (r *Runner[Tx]) behind(ctx context.Context, tx Tx, m *Message) error {
	if r.order == nil || len(m.Key) == 0 {
		return nil
	}
	behind, err := r.order.Behind(ctx, tx, r.cfg.Subscriber, m)
	if err == nil && behind {
		err = errBehind
	}
	return err
}
