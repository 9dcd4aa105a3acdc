package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/internal/kafkatest"
)

// of lets a worker process read the topic.
func (s childSpec) of(topic *kafkatest.Topic) childSpec {
	s.KafkaBrokers, s.Group, s.Topic = topic.Brokers, topic.Group, topic.Name
	return s
}

// The messages behind one that is still being handled are settled when the process
// is killed. That one comes again, and none of them takes effect twice.
func TestKafkaKilledWithAGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	all := ids("m", 10)
	topic.Send(0, all...)
	first := w.startChild(childSpec{Workers: 4, HoldID: all[3]}.of(topic))
	require.Equal(t, "begun "+all[3], first.next())
	eventually(t, "all others have taken effect", func() bool { return w.effects() == len(all)-1 })
	committed := func() int64 {
		offset := topic.Committed(0)
		require.LessOrEqual(t, offset, int64(3), "the offset of a message that is not settled is committed")
		return offset
	}
	eventually(t, "what stands in front of it is committed", func() bool { return committed() == 3 })
	topic.Send(0, "another") // whose effect is there only after further commits
	eventually(t, "another has taken effect", func() bool { committed(); return w.effects() == len(all) })
	first.kill()
	require.EqualValues(t, 3, committed())

	second := w.startChild(childSpec{Workers: 4}.of(topic))
	eventually(t, "all of it is committed", func() bool { return topic.Committed(0) == int64(len(all))+1 })
	w.requireEffects(append(all, "another")...)
	second.terminate()
	require.Zero(t, second.exitCode())
}

// What may have been delivered before an assignment is suspected of a crash.
func TestCrashLoopKafka(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	all := ids("m", 200)
	topic.Send(0, all...)
	poison := all[100]
	spec := childSpec{Workers: 3, Poison: poison, CrashLimit: 2}.of(topic)
	for range spec.CrashLimit { // the first messages after an assignment count from their first attempt on
		c := w.startChild(spec)
		require.Equal(t, exitPoisoned, c.exitCode())
	}
	last := w.startChild(spec)
	eventually(t, "all but one have taken effect", func() bool { return w.effects() == len(all)-1 && w.setAside() == 1 })
	require.Equal(t, poison+" crash", w.setAsideMessage())
	eventually(t, "all of it is committed", func() bool { return topic.Committed(0) == int64(len(all)) })
	last.terminate()
	require.Zero(t, last.exitCode())
	require.Zero(t, w.db.Int(t, "select count(*) from %s.begun_attempts"))
}
