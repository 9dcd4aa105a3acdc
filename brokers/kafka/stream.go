package kafka

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/ackafter/ackafter/consumer"
)

// stream is one partition for one generation of the group.
type stream struct {
	name      string // "orders/3"
	topic     string
	partition int
	window    int
	doubtful  int // how many of the next messages may have been delivered before
	buffer    *buffer
	ended     <-chan struct{} // closed when Next has nothing more to give
	fail      func(error)     // ends the stream
	batch     *batch          // what Next is reading; nil at its end
	idText    string          // the topic's id, set before the first batch comes
	hurry     chan struct{}   // gets a token when the window waits for a commit

	mu         sync.Mutex
	id         topicID // of the topic; zero when the brokers have none
	partitions int     // how many the topic had when the group began it; 0 when that is not known
	epochs     epochs
	begun      bool // mark is set
	mark       watermark
	committed  int64     // what the group has; -1 when it must be told in any case
	unsure     bool      // a commit has had no answer: the group may come to have less than committed
	delivered  int       // how many messages were delivered
	done       int       // how many of them are below committed
	advanced   time.Time // when position last rose, or there was last nothing to do
	over       bool      // no Ack is accepted any more
	lost       bool      // the topic was made again: nothing is committed any more
	broken     bool      // what comes next cannot be read
}

func newStream(c Config, topic string, partition int) *stream {
	return &stream{
		name:      topic + "/" + strconv.Itoa(partition),
		topic:     topic,
		partition: partition,
		window:    c.Window,
		doubtful:  c.Window,
		buffer:    newBuffer(c.FetchBytes),
		hurry:     make(chan struct{}, 1),
		committed: -1,
	}
}

// identify sets which topic it is. It must be called before begin.
func (s *stream) identify(m mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.idText, s.partitions = m.id, m.id.String(), m.partitions
}

// lose says that the topic was made again. What was settled of the one before
// must not be committed for the new one.
func (s *stream) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
}

// begin sets where the stream begins, and what the group has committed.
func (s *stream) begin(at offset, committed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark, s.committed, s.begun, s.advanced = newWatermark(at.at), committed, true, time.Now()
	s.epochs = epochs{{at.at - 1, at.at - 1, at.epoch}}
}

// Name returns topic and partition, as "orders/3".
func (s *stream) Name() string { return s.name }

func (s *stream) Next(ctx context.Context, limit int) ([]*consumer.Message, error) {
	for {
		select {
		case <-s.ended:
			return nil, io.EOF
		default:
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if ms := s.take(max(limit, 1)); len(ms) > 0 {
			return ms, nil
		}
		select {
		case <-s.ended:
		case <-ctx.Done():
		case <-s.buffer.wake:
		}
	}
}

// take returns the next messages, at most limit, and no more than the window
// has room for: none when nothing waits.
func (s *stream) take(limit int) []*consumer.Message {
	limit = min(limit, s.room())
	var ms []*consumer.Message
	for len(ms) < limit {
		if s.batch == nil {
			if s.batch = s.buffer.pop(); s.batch == nil {
				break
			}
			s.enter(s.batch)
		}
		r, err := s.batch.next()
		if err != nil {
			if s.allSettled() {
				s.fail(unreadable(s.name, err))
			}
			break
		}
		if r == nil {
			s.pass(s.batch.last + 1)
			s.batch = nil
			continue
		}
		if ms == nil {
			ms = make([]*consumer.Message, 0, min(limit, int(s.batch.count)+1))
		}
		ms = append(ms, s.message(r, s.batch))
		s.deliver(r.offset)
	}
	return ms
}

// room returns how many messages the window has room for: it counts from what
// the group has, since a crash repeats from there.
func (s *stream) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := s.window - (s.delivered - s.done)
	if room <= 0 && s.uncommitted() > 0 {
		signal(s.hurry)
	}
	return room
}

// enter notes who was the leader for the offsets of a batch.
func (s *stream) enter(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epochs = s.epochs.add(b)
}

// uncommitted returns how many messages a commit would make room for.
func (s *stream) uncommitted() int { return s.delivered - s.mark.held() - s.done }

func (s *stream) deliver(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark.deliver(offset)
	s.delivered++
	s.doubtful = max(0, s.doubtful-1)
}

// allSettled tells whether everything that was delivered is settled. What comes
// next cannot be read, and waits for that: else a member that begins anew each
// time would never finish what is before it.
func (s *stream) allSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
	return s.mark.held() == 0
}

// behind notes that the log has grown. Until then there was nothing to do when
// it ended at end: a partition stands still only from now on.
func (s *stream) behind(end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end <= s.mark.position() {
		s.advanced = time.Now()
	}
}

func (s *stream) pass(to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark.pass(to)
	if s.mark.held() == 0 {
		s.advanced = time.Now()
	}
}

// Ack notes that messages are settled; the generation's committer tells the
// group in time. Only a settled offset below which all are settled counts.
func (s *stream) Ack(ctx context.Context, ms ...*consumer.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		if r, ok := m.Raw.(*Record); !ok || r.stream != s {
			return fmt.Errorf("%w (%s)", errForeign, m.Position)
		}
	}
	if s.over {
		return errEnded
	}
	for _, m := range ms {
		if s.mark.settle(m.Raw.(*Record).Offset) {
			s.advanced = time.Now()
		}
	}
	full := s.delivered-s.done >= s.window
	if n := s.uncommitted(); n > 0 && (full || 2*n >= s.window) {
		signal(s.hurry)
	}
	if s.broken && s.mark.held() == 0 {
		signal(s.buffer.wake)
	}
	return nil
}

// close refuses every further Ack.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// due returns the offset to commit, and whether the group does not have it.
func (s *stream) due() (offset, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.mark.position()
	s.epochs = s.epochs.from(at - 1)
	o := offset{at: at, epoch: s.epochs.of(at - 1), mark: mark{s.id, s.partitions}, below: s.delivered - s.mark.held()}
	return o, s.begun && !s.lost && (at > s.committed || s.unsure)
}

// commit notes what the group has committed.
func (s *stream) commit(o offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = max(s.committed, o.at)
	full := s.delivered-s.done >= s.window
	s.done = max(s.done, o.below)
	if full && s.delivered-s.done < s.window {
		signal(s.buffer.wake)
	}
}

// doubt notes whether a commit is on its way of which nobody knows when the
// group will take it in. As long as it may, the newest offset is committed
// again and again.
func (s *stream) doubt(unsure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsure = unsure
}

// has tells whether the group has committed the offset, or a later one.
func (s *stream) has(offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed >= offset
}

// untouched tells whether nothing was delivered yet.
func (s *stream) untouched(offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark.position() == offset && s.mark.held() == 0
}
