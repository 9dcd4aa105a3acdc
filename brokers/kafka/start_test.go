package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

func TestStartLastLosesNothing(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	topic.Send(0, "before", "the group")
	config := topic.Config()
	config.Start, config.CommitInterval = kafka.StartLast, time.Hour
	w := kafkatest.Start(t, config)
	kafkatest.Eventually(t, "the beginning is committed", func() bool { return topic.Committed(0) == 2 })
	w.Stop() // nothing was delivered
	topic.Send(0, "meanwhile")
	kafkatest.Start(t, config).Want("meanwhile")
}

// Partitions that are added later are new: with StartLast, too, they are read
// from their first message, whether a member runs or not.
func TestStartLastNewPartitions(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 2)
	topic.Send(0, "before")
	config := topic.Config()
	config.Start = kafka.StartLast
	w := kafkatest.Start(t, config)
	kafkatest.Eventually(t, "the beginnings are committed", func() bool { return topic.Committed(0) == 1 && topic.Committed(1) == 0 })
	topic.Grow(3)
	topic.Send(2, "while it runs")
	w.Want("while it runs")
	w.Stop()
	topic.Grow(4)
	topic.Send(3, "while it does not")
	w = kafkatest.Start(t, config)
	w.Want("while it does not")
	w.Stop()
	if _, metadata := topic.CommittedAs(3); !strings.Contains(metadata, "partitions=2") {
		t.Errorf("the metadata is %q: it must go on telling how many partitions there were at first", metadata)
	}
}

// A partition that was there when the group began the topic begins at its end,
// though its owner comes later than that of the others.
func TestStartLastOfALateOwner(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 2)
	topic.Send(1, "before")
	config := topic.Config()
	config.Start = kafka.StartLast
	w := kafkatest.Start(t, config)
	kafkatest.Eventually(t, "the beginnings are committed", func() bool { return topic.Committed(0) == 0 && topic.Committed(1) == 1 })
	w.Stop()
	_, metadata := topic.CommittedAs(0)
	other := *topic // a group whose first owner of partition 1 has died early
	other.Group += "-other"
	other.CommitAs(0, 0, metadata)
	config.Group = other.Group
	w = kafkatest.Start(t, config)
	kafkatest.Eventually(t, "the end is committed", func() bool { return other.Committed(1) == 1 })
	topic.Send(1, "after")
	w.Want("after")
}
