package inbox_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/brokers/memory"
	"github.com/ackafter/ackafter/consumer"
)

// Ten runners with KeepOrder share ten streams, whose owners change all the time,
// and the messages in failed_messages. Per key all take effect in the order in
// which they were published, and once, though a fifth of the attempts fails.
//
// That is what is promised: the order of a stream, as a partition of Kafka has
// one, whoever owns it. Several consumers of one queue of RabbitMQ get no order
// that could be kept.
func TestKeepOrderOfTenRunners(t *testing.T) {
	for _, maxBatch := range []int{1, 16} {
		t.Run(fmt.Sprintf("MaxBatch=%d", maxBatch), func(t *testing.T) { testKeepOrderOfTenRunners(t, maxBatch) })
	}
}

func testKeepOrderOfTenRunners(t *testing.T, maxBatch int) {
	b := newRunnerBench(t)
	const runners, keys, each = 10, 25, 40
	b.broker = memory.NewWithConfig(memory.Config{Streams: runners})
	b.MustExec(t, "create table %s.ordered (n bigserial, key text not null, i int not null)")
	insert := b.SQL("insert into %s.ordered (key, i) values ($1, $2)")
	var mu sync.Mutex
	runs := map[string]uint32{}
	b.handle = func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		mu.Lock()
		runs[m.ID]++
		run := runs[m.ID]
		mu.Unlock()
		h := fnv.New32a()
		_, _ = fmt.Fprint(h, m.ID, run)
		if run < 4 && h.Sum32()%5 == 0 {
			return errHandler
		}
		_, err := tx.Exec(ctx, insert, string(m.Key), string(m.Body))
		return err
	}
	b.cfg.Source, b.cfg.KeepOrder, b.cfg.Workers = b.broker, true, 2
	b.cfg.Attempts, b.cfg.MaxTransactions, b.cfg.MaxBatch = 1, 2, maxBatch
	b.cfg.RetryLater = []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond}
	for range runners {
		b.start()
	}
	published := make(chan struct{})
	go func() {
		defer close(published)
		for i := range each {
			for k := range keys {
				b.broker.Publish(&consumer.Message{ID: fmt.Sprintf("k%d-%d", k, i), Key: fmt.Appendf(nil, "k%d", k), Body: fmt.Append(nil, i)})
			}
		}
	}()
	done := func() bool { return b.Int(t, "select count(*) from %s.ordered") == keys*each }
	require.Eventually(t, func() bool { b.broker.Disconnect(); return done() }, 50*time.Second, 100*time.Millisecond)
	<-published
	require.Positive(t, b.Int(t, "select count(*) from %s.processed_messages"))
	b.publish()
	b.requireAside(0)
	b.requireChanges(keys * each)
	require.Zero(t, b.Int(t, `select count(*) from (select i, i - lag(i, 1, -1) over (partition by key order by n) as step from %s.ordered) s where step <> 1`))
}
