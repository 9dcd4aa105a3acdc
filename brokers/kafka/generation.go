package kafka

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
)

// generation is the time between two assignments of the group.
type generation struct {
	*membership
	gen        *kafka.Generation
	partitions []*partition
	commits    *committer
	drained    chan struct{} // closed when nothing runs any more, and err is set
	once       sync.Once
	err        error       // what ends the membership
	again      atomic.Bool // this member has ended it, to begin anew
}

func (m *membership) generation(gen *kafka.Generation) *generation {
	g := &generation{
		membership: m, gen: gen, drained: make(chan struct{}),
		commits: &committer{client: m.client, gen: gen, note: m.source.report.committed, hurry: make(chan struct{}, 1)},
	}
	origins := &origins{client: m.client, known: m.known, partitions: map[string][]int{}, offsets: map[string]map[int]offset{}}
	for topic, assignments := range gen.Assignments {
		for _, a := range assignments {
			origins.partitions[topic] = append(origins.partitions[topic], a.ID)
			s := newStream(m.client.config, topic, a.ID)
			s.hurry = g.commits.hurry
			g.commits.streams = append(g.commits.streams, s)
			g.partitions = append(g.partitions, &partition{
				stream: s, client: m.client, commits: g.commits, log: m.source.report,
				origins: origins, replica: -1, end: -1, high: -1,
			})
		}
	}
	return g
}

// start works on the partitions until the generation or ctx ends. All is one
// function for kafka-go: it ends a generation when the first of its functions
// returns, and does not wait for those that begin after the end.
func (g *generation) start(ctx context.Context) {
	g.gen.Start(func(ended context.Context) {
		if ended.Err() == nil {
			g.run(ctx, ended)
		}
		close(g.drained)
		if ctx.Err() != nil || g.err != nil {
			// The end of this function would make the client join again. Until
			// it is closed it gives signs of life.
			<-ended.Done()
		}
	})
}

func (g *generation) run(ctx context.Context, ended context.Context) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(ended, end)()
	g.commits.remade = end
	g.source.report.up(g.gen.ID, g.partitions)
	var committing, working sync.WaitGroup
	stop := make(chan struct{})
	committing.Go(func() { g.commits.run(g.client.config.CommitInterval, stop) })
	working.Go(func() { g.watch(ctx, end) })
	for _, p := range g.partitions {
		working.Go(func() {
			err := p.run(ctx, g.serve)
			switch {
			case err == nil:
				return
			case restarts(err):
				g.again.Store(true)
			default:
				g.once.Do(func() { g.err = err })
			}
			end()
		})
	}
	<-ctx.Done()
	working.Wait()
	close(stop)
	committing.Wait()
}

// restarts tells whether the next generation makes up for it.
func restarts(err error) bool {
	return errors.Is(err, errLeft) || errors.Is(err, errOvertaken) || errors.Is(err, errRemade)
}

// watch ends the generation when a topic has got other partitions, or was made
// again.
func (g *generation) watch(ctx context.Context, end func()) {
	ticker := time.NewTicker(g.client.config.WatchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if g.watchOnce(ctx) {
				end()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
