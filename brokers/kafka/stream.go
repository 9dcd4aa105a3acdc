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
	doubtful  int64 // below it, a message may have been delivered before
	buffer    *buffer
	ended     <-chan struct{} // closed when Next has nothing more to give
	fail      func(error)     // ends the stream
	batch     *batch          // what Next is reading; nil at its end
	idText    string          // the topic's id, set before the first batch comes

	mu        sync.Mutex
	id        topicID // of the topic; zero when the brokers have none
	begun     bool    // mark is set
	mark      watermark
	committed int64 // what the group has; -1 when it must be told in any case
	advanced  time.Time
	over      bool // no Ack is accepted any more
	lost      bool // the topic was made again: nothing is committed any more
}

func newStream(c Config, topic string, partition int) *stream {
	return &stream{
		name:      topic + "/" + strconv.Itoa(partition),
		topic:     topic,
		partition: partition,
		window:    c.Window,
		buffer:    newBuffer(c.FetchBytes),
	}
}

// identify sets which topic it is. It must be called before begin.
func (s *stream) identify(id topicID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.idText = id, id.String()
}

// lose says that the topic was made again. What was settled of the one before
// must not be committed for the new one.
func (s *stream) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
}

// begin sets where the stream begins, and what the group has committed.
func (s *stream) begin(offset, committed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark, s.committed, s.begun, s.advanced = newWatermark(offset), committed, true, time.Now()
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
		}
		r, err := s.batch.next()
		if err != nil {
			s.fail(fmt.Errorf("kafka: %s: %w", s.name, err))
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

// room returns how many messages the window has room for.
func (s *stream) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window - s.mark.held()
}

func (s *stream) deliver(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark.deliver(offset)
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
	full := s.mark.held() >= s.window
	for _, m := range ms {
		if s.mark.settle(m.Raw.(*Record).Offset) {
			s.advanced = time.Now()
		}
	}
	if full && s.mark.held() < s.window {
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
	return offset{at: at, id: s.id}, s.begun && !s.lost && at > s.committed
}

// commit notes what the group has committed.
func (s *stream) commit(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = max(s.committed, offset)
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
