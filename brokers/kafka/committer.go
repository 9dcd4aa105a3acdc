package kafka

import (
	"sync"
	"time"
)

// committer tells the group what is finished, for all partitions of one
// generation and only through it: the group refuses the commit of a generation
// that has ended, so what another member has committed since is safe. It is
// the only one to commit, one commit at a time, and so offsets only rise.
type committer struct {
	send    func(map[string]map[int]int64) error // Generation.CommitOffsets
	note    func(error)                          // what became of a commit
	streams []*stream

	mu sync.Mutex // held during a commit
}

// run commits every interval until stop is closed, and then once more.
func (c *committer) run(interval time.Duration, stop <-chan struct{}) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.note(c.flush())
		case <-stop:
			c.note(c.flush())
			return
		}
	}
}

// flush commits what is due. An error says that nothing is known to be
// committed; it is due again then.
func (c *committer) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	offsets := map[string]map[int]int64{}
	for _, s := range c.streams {
		at, due := s.due()
		if !due {
			continue
		}
		if offsets[s.topic] == nil {
			offsets[s.topic] = map[int]int64{}
		}
		offsets[s.topic][s.partition] = at
	}
	if len(offsets) == 0 {
		return nil
	}
	if err := c.send(offsets); err != nil {
		return err
	}
	for _, s := range c.streams {
		if at, sent := offsets[s.topic][s.partition]; sent {
			s.commit(at)
		}
	}
	return nil
}
