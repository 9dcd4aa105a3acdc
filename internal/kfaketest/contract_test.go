package kfaketest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/brokers/brokertest"
	"github.com/ackafter/ackafter/internal/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newCluster starts a fake cluster, which ends with the test.
func newCluster(t *testing.T, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestContract(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(3))
	brokertest.Run(t, func(t *testing.T) brokertest.Harness {
		return kafkatest.Harness(t, c.ListenAddrs(), 3)
	})
}
