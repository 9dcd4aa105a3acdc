package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/ackafter/ackafter/consumer"
)

// DeadLetterConfig describes the topic where dead letters go. Only Brokers and
// Topic are required.
type DeadLetterConfig struct {
	// Brokers are some of the cluster's brokers, as in Config.
	Brokers []string
	// Topic is where dead letters are written. It must exist; it is never created
	// by writing to it. Its max.message.bytes should be a few KiB above that of
	// the topics that they come from, for the headers that are added.
	Topic string

	// ClientID, TLS, SASL, Dial, DialTimeout, RequestTimeout and CloseTimeout are
	// as in Config, with the same defaults.
	ClientID                                  string
	TLS                                       *tls.Config
	SASL                                      sasl.Mechanism
	Dial                                      func(ctx context.Context, network, address string) (net.Conn, error)
	DialTimeout, RequestTimeout, CloseTimeout time.Duration
}

// DeadLetter writes the dead letters of Kafka sources to a topic. It implements
// consumer.DeadLetter, and Validator and Checker of the same package.
//
// It has connections of its own, which the first Publish opens. Close closes
// them; the runner does that at the end of Run. Several runners may share a
// DeadLetter: a Publish after a Close connects again. It is safe for concurrent
// use.
type DeadLetter struct {
	topic  string
	config Config // to connect with

	use sync.RWMutex // read while a Publish uses client
	mu  sync.Mutex
	it  *client // nil while there is none
}

// NewDeadLetter returns the dead letters that c describes, or every mistake in c.
// It connects to nothing.
func NewDeadLetter(c DeadLetterConfig) (*DeadLetter, error) {
	config := Config{
		Brokers: c.Brokers, Group: "none", Topics: []string{c.Topic}, ClientID: c.ClientID, TLS: c.TLS, SASL: c.SASL, Dial: c.Dial,
		DialTimeout: c.DialTimeout, RequestTimeout: c.RequestTimeout, CloseTimeout: c.CloseTimeout,
	}
	d := &DeadLetter{topic: c.Topic, config: config.withDefaults()}
	if err := config.validate(); err != nil {
		text := strings.NewReplacer("Config.Topics[0]", "DeadLetterConfig.Topic", "Config.", "DeadLetterConfig.").Replace(err.Error())
		return nil, errors.New(text)
	}
	return d, nil
}

// Validate returns an error for a DeadLetter that NewDeadLetter did not make.
func (d *DeadLetter) Validate() error {
	if d.topic == "" {
		return errors.New("kafka: make the dead letters with NewDeadLetter")
	}
	return nil
}

// Check connects once, and looks the topic up. Whether this user may write to it,
// only a Publish can tell.
func (d *DeadLetter) Check(ctx context.Context, _ consumer.Plan) error {
	c := connect(d.config)
	defer c.close()
	_, err := d.partitions(ctx, c)
	return d.explain(err)
}

// Publish writes a message, and waits until all replicas that are in sync have
// it. It implements consumer.DeadLetter.
//
// Key, value and headers are those of the message, null where they are null. The
// partition follows from the key, as the Java client chooses it. The record's
// time is now: by the message's own, retention could delete it at once.
func (d *DeadLetter) Publish(ctx context.Context, f consumer.Failure) error {
	d.use.RLock()
	defer d.use.RUnlock()
	c := d.client()
	partitions, err := d.partitions(ctx, c)
	if err != nil {
		return d.explain(err)
	}
	m := f.Message
	balancer := kafka.Murmur2Balancer{} // which spreads what has no key
	answer, err := c.api.Produce(ctx, &kafka.ProduceRequest{
		Topic:        d.topic,
		Partition:    balancer.Balance(kafka.Message{Key: m.Key}, partitions...),
		RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{
			Time: time.Now(), Key: nullable(m.Key), Value: nullable(m.Body), Headers: deadHeaders(f),
		}),
	})
	if err != nil {
		return d.explain(err)
	}
	return d.explain(answer.Error)
}

// Close closes the connections, once no Publish uses them. A later Publish opens
// others.
func (d *DeadLetter) Close() error {
	d.use.Lock() // Publish has it for as long as its context at most
	defer d.use.Unlock()
	if d.it != nil {
		d.it.close()
		d.it = nil
	}
	return nil
}

func (d *DeadLetter) client() *client {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.it == nil {
		d.it = connect(d.config)
	}
	return d.it
}

// partitions returns those of the topic.
func (d *DeadLetter) partitions(ctx context.Context, c *client) ([]int, error) {
	topics, err := c.topics(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		if t.Name != d.topic {
			continue
		}
		if t.Error != nil {
			return nil, t.Error
		}
		var ids []int
		for _, p := range t.Partitions {
			ids = append(ids, p.ID)
		}
		if len(ids) > 0 {
			slices.Sort(ids)
			return ids, nil
		}
	}
	return nil, kafka.LeaderNotAvailable
}

// deadHeaders returns the headers of the message, and those that say why it is a
// dead letter.
func deadHeaders(f consumer.Failure) []kafka.Header {
	added := f.Headers()
	var all []kafka.Header
	for _, h := range f.Message.Headers {
		if _, replaced := added.Lookup(h.Key); !replaced {
			all = append(all, kafka.Header{Key: h.Key, Value: h.Value})
		}
	}
	for _, h := range added {
		all = append(all, kafka.Header{Key: h.Key, Value: h.Value})
	}
	return all
}

// nullable keeps null and empty apart.
func nullable(b []byte) kafka.Bytes {
	if b == nil {
		return nil
	}
	return kafka.NewBytes(b)
}

// explain says why a dead letter could not be written, and what would help.
func (d *DeadLetter) explain(err error) error {
	var code kafka.Error
	if !errors.As(err, &code) {
		return explain(d.config, err)
	}
	switch code {
	case kafka.UnknownTopicOrPartition:
		return fmt.Errorf("kafka: the topic %q of the dead letters does not exist: create it, or correct DeadLetterConfig.Topic; "+
			"one that the brokers hide for lack of the right Describe looks the same: %w", d.topic, err)
	case kafka.TopicAuthorizationFailed:
		return fmt.Errorf("kafka: grant Write and Describe on the topic %q of the dead letters: %w", d.topic, err)
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidRecord:
		return fmt.Errorf("kafka: the topic %q of the dead letters does not take this message (max.message.bytes? is it compacted, and the message without a key?): %w: %w",
			d.topic, consumer.ErrRefused, err)
	}
	return explain(d.config, err)
}
