package consumer

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// State is what a Runner is doing.
type State uint8

const (
	// Starting says that Run was not called yet, or is checking database and
	// broker.
	Starting State = iota
	// Running says that messages are handled as they come.
	Running
	// Paused says that database or broker are away. It ends by itself.
	Paused
	// Draining says that handlers in flight are finishing, and that nothing new
	// begins.
	Draining
	// Stopped says that Run has returned.
	Stopped
)

// String returns the state's name in lower case.
func (s State) String() string {
	names := [...]string{"starting", "running", "paused", "draining", "stopped"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// MarshalText returns the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Health is what a Runner was doing at one moment. It can be shown as JSON.
type Health struct {
	State State `json:"state"`
	// Since is when the runner entered State.
	Since time.Time `json:"since"`
	// Reason says what a runner that is paused, or still starting, waits for,
	// and why one has stopped that was not asked to.
	Reason string `json:"reason,omitempty"`
	// Streams are those that this process owns now, by name. None is
	// healthy: others may own them all.
	Streams []StreamHealth `json:"streams"`
	// Unstored are messages that can be neither processed nor set aside, the
	// oldest first and at most 10 of them. They are kept, unacknowledged, until
	// somebody removes the cause: look at this beside OK.
	Unstored []Unstored `json:"unstored,omitempty"`
}

// OK tells whether messages are handled as they come. It answers whether the
// worker is ready, not whether to restart it: a paused one goes on by itself.
// A message that is being retried does not show here, but in Streams.
func (h Health) OK() bool { return h.State == Running }

// StreamHealth is what was happening on one stream.
type StreamHealth struct {
	Name string `json:"name"`
	// Held is how many messages were delivered and are not settled yet.
	Held int `json:"held"`
	// Retrying is how many of them wait for their next attempt.
	Retrying int `json:"retrying"`
	// Advanced is when a message was last settled, or when the stream began.
	// With Held above zero and Advanced long ago, a handler is stuck.
	Advanced time.Time `json:"advanced"`
}

// Health returns what the runner is doing now. It does not block.
func (r *Runner[Tx]) Health() Health {
	h := r.lifecycle.health()
	h.Streams = r.streams.health()
	h.Unstored = r.unstored.list(10)
	if h.State != Running {
		return h
	}
	since, reason := r.gate.state()
	if reason == nil {
		if still, why := r.standstill.state(); why != nil || still.After(since) {
			since, reason = still, why
		}
	}
	if reason != nil {
		h.State, h.Since, h.Reason = Paused, since, reason.Error()
		return h
	}
	if s, ok := r.cfg.Source.(HealthReporter); ok {
		err := s.Health()
		h.Since = r.lifecycle.sourceSince(err != nil)
		if err != nil {
			h.State, h.Reason = Paused, err.Error()
			return h
		}
	}
	if since.After(h.Since) { // the end of a pause
		h.Since = since
	}
	return h
}

// lifecycle is where a runner stands between New and the end of Run.
type lifecycle struct {
	mu     sync.Mutex
	state  State
	since  time.Time
	reason error
	ill    bool // what the source last said
}

func (l *lifecycle) enter(s State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s > l.state {
		l.state, l.since, l.reason = s, time.Now(), nil
	}
}

// stop ends a run, because of err if that is not nil.
func (l *lifecycle) stop(err error) {
	l.enter(Stopped)
	l.waitFor(err)
}

// waitFor says what the start waits for.
func (l *lifecycle) waitFor(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reason = err
}

// sourceSince notes whether the source is ill, and returns since when it is,
// or is not, as far as anyone has looked.
func (l *lifecycle) sourceSince(ill bool) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ill != l.ill {
		l.ill, l.since = ill, time.Now()
	}
	return l.since
}

func (l *lifecycle) health() Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := Health{State: l.state, Since: l.since}
	if l.reason != nil {
		h.Reason = l.reason.Error()
	}
	return h
}

// streamSet holds the streams that are being served.
type streamSet[Tx any] struct {
	mu  sync.Mutex
	all []*streamRun[Tx]
}

func (set *streamSet[Tx]) add(s *streamRun[Tx]) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.all = append(set.all, s)
}

func (set *streamSet[Tx]) remove(s *streamRun[Tx]) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.all = slices.DeleteFunc(set.all, func(other *streamRun[Tx]) bool { return other == s })
}

func (set *streamSet[Tx]) health() []StreamHealth {
	set.mu.Lock()
	defer set.mu.Unlock()
	all := make([]StreamHealth, 0, len(set.all))
	for _, s := range set.all {
		held, retrying := s.counts()
		all = append(all, StreamHealth{
			Name:     s.stream.Name(),
			Held:     held,
			Retrying: retrying,
			Advanced: time.Unix(0, s.advanced.Load()),
		})
	}
	slices.SortFunc(all, func(a, b StreamHealth) int { return strings.Compare(a.Name, b.Name) })
	return all
}
