package consumer

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Unstored is a message that can be neither processed nor set aside: the
// database, or the broker of the dead letters, works and refuses it (ErrRefused).
// It is not acknowledged, and is tried again until somebody removes the cause.
type Unstored struct {
	ID       string    `json:"id"`
	Position string    `json:"position"`
	Since    time.Time `json:"since"`
	Error    string    `json:"error"`
}

// refusedBackoff is the wait before a message that was refused is tried again.
// It is long, since somebody has to do something.
var refusedBackoff = Backoff{Min: time.Second, Max: 5 * time.Minute}

// unstoredSet holds the messages that were refused.
type unstoredSet struct {
	mu  sync.Mutex
	all map[*task]unstored
}

type unstored struct {
	Unstored
	stream any // that has the message in hand
}

func (u *unstoredSet) add(stream any, t *task, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = map[*task]unstored{}
	}
	since := time.Now()
	if known, ok := u.all[t]; ok {
		since = known.Since
	}
	u.all[t] = unstored{Unstored{ID: t.aside.Message.ID, Position: t.m.Position, Since: since, Error: errorText(err)}, stream}
}

func (u *unstoredSet) remove(t *task) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, t)
}

// leave removes those that a stream had in hand when it ended.
func (u *unstoredSet) leave(stream any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.all, func(_ *task, one unstored) bool { return one.stream == stream })
}

// list returns the oldest, at most limit of them.
func (u *unstoredSet) list(limit int) []Unstored {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []Unstored
	for _, one := range u.all {
		all = append(all, one.Unstored)
	}
	slices.SortFunc(all, func(a, b Unstored) int { return a.Since.Compare(b.Since) })
	return all[:min(limit, len(all))]
}
