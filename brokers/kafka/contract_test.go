package kafka_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/brokers/brokertest"
	"github.com/ackafter/ackafter/internal/kafkatest"
	"github.com/ackafter/ackafter/internal/testmain"
)

func TestMain(m *testing.M) {
	testmain.Need("KAFKA_BROKERS")
	goleak.VerifyTestMain(m)
}

func TestContract(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			brokers := kafkatest.Brokers(t)
			brokertest.Run(t, func(t *testing.T) brokertest.Harness {
				return kafkatest.Harness(t, brokers, partitions)
			})
		})
	}
}
