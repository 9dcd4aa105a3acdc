package kafka_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ackafter/ackafter/brokers/kafka"
	"github.com/ackafter/ackafter/consumer"
)

// What the caller does with its slices afterwards is nothing to the source.
func TestConfigIsCopied(t *testing.T) {
	t.Parallel()
	brokers, topics := []string{"127.0.0.1:1"}, []string{"t"}
	s := newSource(t, kafka.Config{Brokers: brokers, Group: "g", Topics: topics, DialTimeout: time.Second})
	brokers[0], topics[0] = "changed.invalid:1", "changed"
	wantText(t, s.Check(t.Context(), consumer.Plan{}), "127.0.0.1:1")
}

func TestZeroSource(t *testing.T) {
	t.Parallel()
	var s kafka.Source
	for name, err := range map[string]error{
		"Validate": s.Validate(), "Health": s.Health(), "Run": s.Run(t.Context(), nil), "Check": s.Check(t.Context(), consumer.Plan{}),
	} {
		t.Run(name, func(t *testing.T) { wantText(t, err, "not made by New or Group") })
	}
	if p := s.Partitions(); len(p) != 0 {
		t.Errorf("the partitions are %v", p)
	}
}

func TestEnumNames(t *testing.T) {
	t.Parallel()
	got := fmt.Sprint(kafka.StartFirst, kafka.StartLast, kafka.OutOfRangeFail, kafka.OutOfRangeFirst, kafka.OutOfRangeLast)
	if want := "StartFirst StartLast OutOfRangeFail OutOfRangeFirst OutOfRangeLast"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
