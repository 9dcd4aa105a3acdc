package e2e

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/kafkatest"
	"github.com/ackafter/ackafter/internal/pgtest"
)

// A handler that takes longer than the group waits for it loses its partition in
// the middle, to a member that is given the same message. It takes effect once.
func TestKafkaHandlerSlowerThanTheRebalance(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.MustExec(t, "create table %s.effects (id text not null)")
	insert := db.SQL("insert into %s.effects values ($1)")
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	topic.Send(0, "a", "b")
	in, err := inbox.NewWithConfig(db.Pool, inbox.Config{Schema: db.Schema, LockTimeout: 200 * time.Millisecond})
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	var members sync.WaitGroup
	member := func(handle func()) *kafka.Source {
		config := topic.Config()
		config.RebalanceTimeout = time.Second
		source, err := kafka.New(config)
		require.NoError(t, err)
		runner, err := consumer.New(consumer.Config[pgx.Tx]{
			Subscriber: "e2e", Source: source, Inbox: in, MessageID: consumer.PositionID,
			Logger: slog.New(slog.DiscardHandler),
			Handler: consumer.HandlerFunc[pgx.Tx](func(_ context.Context, tx pgx.Tx, m *consumer.Message) error {
				// Not the handler's context: it would end with the partition.
				_, err := tx.Exec(context.WithoutCancel(ctx), insert, m.ID)
				handle()
				return err
			}),
		})
		require.NoError(t, err)
		members.Go(func() {
			if err := runner.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		return source
	}
	var once sync.Once
	begun, finish := make(chan struct{}), make(chan struct{})
	slow := member(func() {
		once.Do(func() {
			close(begun)
			<-finish
		})
	})
	await(t, "the slow handler begins", begun)
	quick := member(func() {})
	eventually(t, "the partition moves", func() bool { return len(quick.Partitions()) == 1 })
	close(finish)
	eventually(t, "all is committed", func() bool { return topic.Committed(0) == 2 })
	eventually(t, "the slow member has joined again", func() bool { return slow.Health() == nil })
	stop()
	members.Wait()
	require.Equal(t, 2, db.Int(t, "select count(*) from %s.effects"))
	require.Equal(t, 2, db.Int(t, "select count(distinct id) from %s.effects"))
	require.Equal(t, 2, db.Processed(t))
}
