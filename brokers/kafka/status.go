package kafka

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// reporter knows what works and what does not, and logs when that changes.
type reporter struct {
	log   *slog.Logger
	group string

	mu       sync.Mutex
	cause    error     // why there is no membership; nil when there is
	since    time.Time // since when there is none
	said     bool      // the log says that it fails
	failures map[string]failure
	assigned []*partition
}

// failure is what is wrong with one partition, or with the commits.
type failure struct {
	err   error
	since time.Time
}

// commits is the name under which the failures of commits are kept. No
// partition has it.
const commits = "commit"

func newReporter(c Config) *reporter {
	return &reporter{
		group:    c.Group,
		cause:    errNotRunning,
		failures: map[string]failure{},
		log:      c.Logger.With("messaging.system", "kafka", "messaging.consumer.group.name", c.Group),
	}
}

// set notes a state that is no surprise: not running, joining.
func (r *reporter) set(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause == nil || cause == errNotRunning || r.cause == errNotRunning {
		r.since = time.Now()
	}
	r.cause, r.assigned = cause, nil
	clear(r.failures)
}

// down notes that there is no membership, or still none.
func (r *reporter) down(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cause = cause
	if !r.said {
		r.log.Warn("not a member of the group; joining again", "error", cause)
		r.said = true
	}
}

// up notes what the group has assigned.
func (r *reporter) up(generation int32, ps []*partition) {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.name
	}
	slices.Sort(names)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Info("partitions assigned", "generation", generation, "partitions", strings.Join(names, " "))
	r.cause, r.said, r.assigned = nil, false, ps
}

// failing notes that something does not work, or still not.
func (r *reporter) failing(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, known := r.failures[name]
	if !known {
		f.since = time.Now()
		r.log.Warn("cannot go on; trying again", "what", name, "error", err)
	}
	f.err = err
	r.failures[name] = f
}

// working notes that it works.
func (r *reporter) working(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f, known := r.failures[name]; known {
		r.log.Info("going on", "what", name, "after", time.Since(f.since))
		delete(r.failures, name)
	}
}

// done forgets a partition.
func (r *reporter) done(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failures, name)
}

// committed notes what became of a commit. A generation that has ended is
// refused, which is normal: another member has the partitions.
func (r *reporter) committed(err error) {
	switch {
	case err == nil:
		r.working(commits)
	case refused(err):
		r.log.Debug("a commit was refused, since the partitions are assigned anew", "error", err)
	default:
		r.failing(commits, err)
	}
}

func (r *reporter) skipped(name string, from, to, first, last int64, why string) {
	r.log.Warn("the committed offset is out of range; going on elsewhere (Config.OutOfRange)",
		"partition", name, "committed", from, "now", to, "log start", first, "log end", last, "reason", why)
}

// shunned notes that a replica has failed.
func (r *reporter) shunned(name string, err error) {
	r.log.Warn("the replica of Config.Rack cannot be read; asking the leader for a while", "partition", name, "error", err)
}

func (r *reporter) remade(name string, committed, to int64) {
	r.log.Warn("the topic was deleted and made again; beginning at its first message",
		"partition", name, "committed before", committed, "now", to)
}

// health returns nil when everything works.
func (r *reporter) health(stall time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause == errNotRunning {
		return r.cause
	}
	if r.cause != nil {
		return fmt.Errorf("%w (group %q, since %s)", r.cause, r.group, r.since.Format(time.RFC3339))
	}
	for _, name := range slices.Sorted(maps.Keys(r.failures)) {
		f := r.failures[name]
		return fmt.Errorf("kafka: %s fails since %s: %w (%d such failures)", name, f.since.Format(time.RFC3339), f.err, len(r.failures))
	}
	for _, p := range r.assigned {
		if h := p.health(); stall > 0 && h.Lag > 0 && time.Since(h.Advanced) > stall {
			return fmt.Errorf("kafka: %s stands still at offset %d since %s, with %d to go", p.name, h.Settled, h.Advanced.Format(time.RFC3339), h.Lag)
		}
	}
	return nil
}

func (r *reporter) partitions() []PartitionHealth {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]PartitionHealth, len(r.assigned))
	for i, p := range r.assigned {
		all[i] = p.health()
		if err := r.failures[p.name].err; err != nil {
			all[i].Reason = err.Error()
		}
	}
	slices.SortFunc(all, func(a, b PartitionHealth) int {
		return or(strings.Compare(a.Topic, b.Topic), a.Partition-b.Partition)
	})
	return all
}
