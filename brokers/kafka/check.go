package kafka

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/consumer"
)

// Check connects once, and looks at the topics and at the group. Its errors
// say what is wrong and what would help; one that may pass wraps
// consumer.ErrOutage. It does not join the group.
func (s *Source) Check(ctx context.Context, p consumer.Plan) error {
	if err := s.Validate(); err != nil {
		return err
	}
	s.checkPlan(p)
	c := connect(s.config)
	defer c.close()
	topics, err := c.topics(ctx)
	if err != nil {
		return explain(s.config, err)
	}
	for _, t := range topics {
		if err := c.checkTopic(ctx, t); err != nil {
			return explain(s.config, fmt.Errorf("topic %q: %w", t.Name, err))
		}
	}
	return explain(s.config, c.checkGroup(ctx))
}

// checkPlan compares what the runner is going to do with the configuration.
func (s *Source) checkPlan(p consumer.Plan) {
	c := s.config
	if p.Workers > c.Window {
		p.Warn(fmt.Sprintf("Config.Window of the Kafka source is %d: no more than that of the %d workers will ever be busy", c.Window, p.Workers))
	}
	if limit := min(c.SessionTimeout, c.RebalanceTimeout); p.DrainTimeout >= limit {
		p.Warn(fmt.Sprintf("handlers may go on for %v (DrainTimeout) when partitions move, but the group waits only for %v "+
			"(the smaller of Config.SessionTimeout and RebalanceTimeout): a member that takes longer is thrown out, and its messages are delivered again", p.DrainTimeout, limit))
	}
}

// checkTopic reads nothing from the topic, but asks whether it might.
func (c *client) checkTopic(ctx context.Context, t kafka.Topic) error {
	if t.Error != nil {
		return t.Error
	}
	if len(t.Partitions) == 0 {
		return kafka.LeaderNotAvailable
	}
	id := t.Partitions[0].ID
	_, last, err := c.ends(ctx, t.Name, id)
	if err != nil {
		return err
	}
	r, err := c.fetch(ctx, place{topic: t.Name, partition: id, replica: -1, epoch: -1}, last, 0)
	if err != nil {
		return err
	}
	return r.err
}

// checkGroup asks whether this may be a member of the group.
func (c *client) checkGroup(ctx context.Context) error {
	_, err := c.findCoordinator(ctx)
	return err
}
