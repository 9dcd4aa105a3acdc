package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// committer tells the group what is finished, for all partitions of one
// generation and only through it: the group refuses the commit of a generation
// that has ended, so what another member has committed since is safe. It is
// the only one to commit, one commit at a time, and so offsets only rise.
//
// A commit without an answer is the exception: it may lie in a socket, and come
// to the group after a later one. So for a while after it the newest offsets are
// committed again, whatever the group is thought to have.
type committer struct {
	client  *client
	gen     *kafka.Generation
	note    func(error) // what became of a commit
	remade  func()      // ends the generation since a topic was made again
	streams []*stream
	hurry   chan struct{} // holds a token when a window is full of what is settled

	mu     sync.Mutex // held during a commit
	unsure time.Time  // until when a commit without an answer may come; zero when there is none
}

// run commits every interval, sooner where a window waits for it or a commit has
// failed, until stop is closed, and then once more.
func (c *committer) run(interval time.Duration, stop <-chan struct{}) {
	wait := backoff{min: c.client.config.BackoffMin, max: c.client.config.BackoffMax}
	ticker, retry := time.NewTicker(interval), time.NewTimer(interval)
	retry.Stop() // until something fails
	defer ticker.Stop()
	defer retry.Stop()
	for last := false; !last; {
		select {
		case <-ticker.C:
		case <-retry.C:
		case <-c.hurry:
		case <-stop:
			last = true
		}
		err := c.flush()
		c.note(err)
		if err != nil {
			retry.Reset(wait.step())
		} else {
			wait.reset()
		}
	}
}

// flush commits what is due. What is not known to be committed is due again,
// and an error says why. The last flush comes when Run's context has ended, so
// it has a limit of its own.
func (c *committer) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := map[*stream]offset{}
	for _, s := range c.streams {
		if o, is := s.due(); is {
			due[s] = o
		}
	}
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.client.config.RequestTimeout)
	defer cancel()
	gone, err := c.verify(ctx, due)
	if err != nil {
		return err
	}
	if err := c.send(ctx, due); err != nil {
		return err
	}
	return gone
}

// verify drops what is due for a topic that is not there any more: gone says
// which. A topic of the same name that was made since must not get the offsets.
func (c *committer) verify(ctx context.Context, due map[*stream]offset) (gone, err error) {
	names := map[string]bool{}
	for s, o := range due {
		if o.mark.id != (topicID{}) {
			names[s.topic] = true
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	ids, err := c.client.ids(ctx, slices.Sorted(maps.Keys(names)))
	if err != nil {
		return nil, err
	}
	for s, o := range due {
		id, exists := ids[s.topic]
		switch {
		case !names[s.topic], exists && id == o.mark.id:
			continue
		case exists:
			s.lose()
			c.remade()
		default:
			gone = fmt.Errorf("%s: %w", s.name, kafka.UnknownTopicOrPartition)
		}
		delete(due, s)
	}
	return gone, nil
}

func (c *committer) send(ctx context.Context, due map[*stream]offset) error {
	offsets := map[string]map[int]offset{}
	for s, o := range due {
		if offsets[s.topic] == nil {
			offsets[s.topic] = map[int]offset{}
		}
		offsets[s.topic][s.partition] = o
	}
	if len(offsets) == 0 {
		return nil
	}
	done, err := c.client.commit(ctx, c.gen, offsets)
	c.doubt(done == nil, due)
	for s, o := range due {
		if done[s.topic][s.partition] {
			s.commit(o)
		}
	}
	return err
}

// doubt notes whether a commit has had no answer. A broker that does not answer
// within RequestTimeout is given as long once more to take it in.
func (c *committer) doubt(unanswered bool, due map[*stream]offset) {
	if unanswered {
		c.unsure = time.Now().Add(c.client.config.RequestTimeout)
	}
	over := !unanswered && time.Now().After(c.unsure)
	for s := range due {
		if unanswered || over {
			s.doubt(unanswered)
		}
	}
}
