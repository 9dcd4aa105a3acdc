package memory

import (
	"strconv"
	"sync"

	"github.com/ackafter/ackafter/consumer"
)

// queue holds the messages of one stream. At most one stream reads it at a
// time; it is the owner.
type queue struct {
	name   string
	prefix string // of positions
	settle func(n int)
	free   chan struct{} // holds a token while nobody owns the queue
	wake   chan struct{} // holds a token when something was published

	mu      sync.Mutex
	owner   *stream
	entries []*consumer.Message // as published; nil once acknowledged
	head    int                 // entries before head are settled and gone
	base    int64               // the offset of entries[0]
	next    int64               // the offset to deliver next
	seen    int64               // offsets below were delivered before, if only to a lost stream
}

func newQueue(i int, settle func(int)) *queue {
	name := "memory/" + strconv.Itoa(i)
	q := &queue{
		name:   name,
		prefix: name + "@",
		settle: settle,
		free:   make(chan struct{}, 1),
		wake:   make(chan struct{}, 1),
	}
	q.free <- struct{}{}
	return q
}

func (q *queue) publish(m *consumer.Message) {
	q.mu.Lock()
	q.entries = append(q.entries, m)
	q.mu.Unlock()
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// open makes s the owner; the caller has taken the token from q.free. s begins
// with the first message that is not acknowledged.
func (q *queue) open(s *stream) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.owner = s
	q.seen = max(q.seen, q.next)
	q.next = q.base + int64(q.head)
}

// release takes the queue from s, if s still owns it, and ends s.
func (q *queue) release(s *stream) {
	q.mu.Lock()
	owned := q.owner == s
	if owned {
		q.owner = nil
	}
	q.mu.Unlock()
	s.cancel()
	if owned {
		q.free <- struct{}{}
	}
}

// disconnect takes the queue from its owner.
func (q *queue) disconnect() {
	q.mu.Lock()
	s := q.owner
	q.mu.Unlock()
	if s != nil {
		q.release(s)
	}
}

// take returns the next messages for s, at most n: none when nothing waits.
func (q *queue) take(s *stream, n int) []*consumer.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.owner != s {
		return nil
	}
	end := q.base + int64(len(q.entries))
	var ms []*consumer.Message
	for ; q.next < end && len(ms) < n; q.next++ {
		m := q.entries[q.next-q.base]
		if m == nil {
			continue
		}
		if ms == nil {
			ms = make([]*consumer.Message, 0, min(int64(n), end-q.next))
		}
		ms = append(ms, q.deliver(s, m))
	}
	return ms
}

// deliver makes the delivery of the message at q.next.
func (q *queue) deliver(s *stream, m *consumer.Message) *consumer.Message {
	d := &delivery{message: *m, id: m.ID, stream: s, offset: q.next}
	var position [32]byte
	d.message.Position = string(strconv.AppendInt(append(position[:0], q.prefix...), q.next, 10))
	d.message.Redelivered = q.next < q.seen
	d.message.Attempt = 1
	d.message.Raw = d
	return &d.message
}

// ack settles ms, which s delivered, and reports true; it does nothing and
// reports false when s has lost the queue.
func (q *queue) ack(s *stream, ms []*consumer.Message) bool {
	q.mu.Lock()
	if q.owner != s {
		q.mu.Unlock()
		return false
	}
	n := 0
	for _, m := range ms {
		if i := m.Raw.(*delivery).offset - q.base; i >= int64(q.head) && q.entries[i] != nil {
			q.entries[i] = nil
			n++
		}
	}
	q.trim()
	q.mu.Unlock()
	if n > 0 {
		q.settle(n)
	}
	return true
}

// trim drops the settled entries at the front, and their room once they fill
// half of it, so that each entry is moved at most once on average.
func (q *queue) trim() {
	for q.head < len(q.entries) && q.entries[q.head] == nil {
		q.head++
	}
	q.next = max(q.next, q.base+int64(q.head))
	if q.head < 64 || q.head < len(q.entries)/2 {
		return
	}
	n := copy(q.entries, q.entries[q.head:])
	clear(q.entries[n:])
	q.entries = q.entries[:n]
	q.base += int64(q.head)
	q.head = 0
}
