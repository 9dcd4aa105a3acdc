package memory

import (
	"context"
	"slices"

	"github.com/ackafter/ackafter/consumer"
)

// DeadLetter returns what puts dead letters into b, with the headers of
// consumer.Failure.Headers and the id that the message was published with. It
// never fails.
func (b *Broker) DeadLetter() consumer.DeadLetter { return deadLetter{b} }

type deadLetter struct{ to *Broker }

func (d deadLetter) Validate() error { return d.to.Validate() }

func (d deadLetter) Publish(ctx context.Context, f consumer.Failure) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m := *f.Message
	if raw, ok := m.Raw.(*delivery); ok {
		m.ID = raw.id // the runner's may be made from it, and would be made from that once more
	}
	added := f.Headers()
	m.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h consumer.Header) bool {
		_, replaced := added.Lookup(h.Key)
		return replaced
	})
	m.Headers = append(m.Headers, added...)
	d.to.Publish(&m)
	return nil
}
