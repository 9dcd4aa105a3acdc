package kafka_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

func TestCodecs(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	codecs := []kafkago.Compression{0, kafkago.Gzip, kafkago.Snappy, kafkago.Lz4, kafkago.Zstd}
	for _, codec := range codecs {
		topic.Write(0, codec,
			kafkago.Message{Value: []byte(codec.String())},
			kafkago.Message{Value: bytes.Repeat([]byte("x"), 100_000)})
	}
	w := kafkatest.Start(t, topic.Config())
	for _, codec := range codecs {
		w.Want(codec.String())
		if d := w.Next(); len(d.Body) != 100_000 {
			t.Errorf("%s: the body has %d bytes", codec, len(d.Body))
		}
	}
}

// A batch that becomes too large ends Run, after what is before it.
func TestBatchBomb(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	topic.Send(0, "before")
	topic.Write(0, kafkago.Zstd, kafkago.Message{Value: make([]byte, 3<<20)})
	topic.Send(0, "after")
	config := topic.Config()
	config.MaxBatchBytes = 1 << 20
	w := kafkatest.Start(t, config)
	d := w.Next()
	d.Ack()
	err := w.Failed()
	if !errors.Is(err, kafka.ErrUnreadable) || errors.Is(err, consumer.ErrOutage) || string(d.Body) != "before" {
		t.Errorf("after %q: %v", d.Body, err)
	}
	wantText(t, err, topic.Name+"/0", "offset 1", "more than 1048576 decompressed (zstd)", "Config.MaxBatchBytes", "--reset-offsets")
	if at := topic.Committed(0); at != 1 {
		t.Errorf("committed is %d, want 1", at)
	}
	config.MaxBatchBytes = 4 << 20
	w = kafkatest.Start(t, config)
	w.Next().Ack()
	w.Want("after")
}

func TestRecordContent(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 2)
	at := time.UnixMilli(1_790_000_000_123)
	topic.Write(1, 0,
		kafkago.Message{Key: []byte("k"), Value: nil, Time: at},
		kafkago.Message{Key: []byte{}, Value: []byte{}, Headers: []kafkago.Header{
			{Key: "h", Value: []byte("one")}, {Key: "x", Value: []byte{}}, {Key: "h", Value: []byte("two")}, {Key: "n", Value: nil},
		}},
		kafkago.Message{Value: []byte("no key")})
	w := kafkatest.Start(t, topic.Config())
	tombstone, empty, last := w.Next(), w.Next(), w.Next()
	if tombstone.Body != nil || string(tombstone.Key) != "k" || !tombstone.Time.Equal(at) {
		t.Errorf("the tombstone is %+v", tombstone.Message)
	}
	if empty.Body == nil || len(empty.Body) != 0 || empty.Key == nil {
		t.Errorf("the empty message is %+v", empty.Message)
	}
	if h := fmt.Sprintf("%q", empty.Headers.Values("h")); h != `["one" "two"]` || len(empty.Headers) != 4 {
		t.Errorf("the headers are %q", empty.Headers)
	}
	if v, ok := empty.Headers.Lookup("n"); !ok || v != nil {
		t.Errorf("a null header is %v, %v", v, ok)
	}
	if last.Key != nil || last.ID != "" || last.Topic != topic.Name || last.Position != topic.Name+"/1@2" {
		t.Errorf("the last message is %+v", last.Message)
	}
	r, ok := last.Raw.(*kafka.Record)
	if !ok || r.Topic != topic.Name || r.Partition != 1 || r.Offset != 2 || r.AppendTime {
		t.Errorf("the record is %+v", last.Raw)
	}
}

func TestAppendTime(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	topic.Configure("message.timestamp.type", "LogAppendTime")
	before := time.Now().Add(-time.Second)
	topic.Write(0, 0, kafkago.Message{Value: []byte("m"), Time: time.UnixMilli(1000)})
	d := kafkatest.Start(t, topic.Config()).Next()
	if d.Time.Before(before) || !d.Raw.(*kafka.Record).AppendTime {
		t.Errorf("the time is %v (%+v), want the broker's", d.Time, d.Raw)
	}
}

// The head of the partition is not settled: the rest goes on up to the window.
func TestWindow(t *testing.T) {
	t.Parallel()
	topic := kafkatest.New(t, kafkatest.Brokers(t), 1)
	for i := range 30 {
		topic.Send(0, fmt.Sprint(i))
	}
	config := topic.Config()
	config.Window, config.FetchBytes = 5, 200
	w := kafkatest.Start(t, config)
	head := w.Next()
	for i := range 4 {
		w.Want(fmt.Sprint(i + 1))
	}
	// The window is full: only the head makes room.
	kafkatest.Eventually(t, "the partition stands at the end of its window", func() bool {
		p := w.Source.Partitions()
		return len(p) == 1 && p[0].Position == 5 && p[0].Settled == 0 && p[0].HighWatermark == 30 && p[0].Lag == 30
	})
	head.Ack()
	for i := range 25 {
		w.Want(fmt.Sprint(i + 5))
	}
	kafkatest.Eventually(t, "everything is committed", func() bool { return topic.Committed(0) == 30 })
	kafkatest.Eventually(t, "the partition is healthy", func() bool {
		p := w.Source.Partitions()[0]
		return p.Lag == 0 && p.Committed == 30 && p.Reason == ""
	})
}
