//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	kafkaStartLimit = 2 * time.Minute

	// The ports of an instance.
	kafkaPort      = 0
	controllerPort = 1
	kafkaPorts     = 2
)

// KafkaConfig configures a private Kafka server. The zero value is good for
// tests.
type KafkaConfig struct {
	// Listeners are further ones, besides that of URL.
	Listeners []KafkaListener
	// Settings are further lines of server.properties.
	Settings map[string]string
	// Detached lets the server outlive this process.
	Detached bool
}

// KafkaListener is an address with a security protocol of its own.
type KafkaListener struct {
	Name     string // in upper case
	Protocol string // such as SASL_SSL
	Address  string // host:port
}

// Kafka is a private Kafka server: one node, which is broker and controller.
// Its methods may be called from several goroutines.
type Kafka struct {
	instance *instance
	config   KafkaConfig
}

// StartKafka starts a server with its data below dir, and returns when groups
// can be joined, which takes several seconds. When it finds data of an earlier
// server there, it uses them. Topics are not created by themselves.
func StartKafka(ctx context.Context, dir string, config KafkaConfig) (*Kafka, error) {
	i, err := openInstance(ctx, "kafka", dir, kafkaPorts, config.Detached)
	if err != nil {
		return nil, err
	}
	k := &Kafka{instance: i, config: config}
	i.data = filepath.Join(i.dir, dataName)
	if err := k.Start(ctx); err != nil {
		return nil, errors.Join(err, i.release())
	}
	return k, nil
}

// URL returns the server's address, host:port. It stays the same over Stop,
// Kill and Start.
func (k *Kafka) URL() string { return k.instance.url }

// Brokers returns the addresses for a client's configuration.
func (k *Kafka) Brokers() []string { return splitBrokers(k.URL()) }

// Start starts the server again after Stop or Kill, and returns when groups
// can be joined.
func (k *Kafka) Start(ctx context.Context) error {
	return k.instance.start(ctx, kafkaStartLimit, k.attempt)
}

// Stop shuts the server down in an orderly way.
func (k *Kafka) Stop(ctx context.Context) error { return k.instance.stop(ctx, false) }

// Kill ends the server with SIGKILL. What it has acknowledged survives: the
// operating system has it.
func (k *Kafka) Kill(ctx context.Context) error { return k.instance.stop(ctx, true) }

// Close stops the server and deletes its data. Its log remains in dir.
func (k *Kafka) Close() error { return k.instance.close(context.Background()) }

func (k *Kafka) attempt(ctx context.Context) error {
	i := k.instance
	i.setURL(loopback(i.port(kafkaPort)))
	java, err := Binary("java")
	if err != nil {
		return err
	}
	jars, err := kafkaJars(ctx)
	if err != nil {
		return err
	}
	if err := k.writeFiles(ctx, java, jars); err != nil {
		return err
	}
	if _, err := i.launch(ctx, processSpec{
		name: "kafka", path: java, args: javaArguments(jars, "kafka.Kafka", k.propertiesFile()), cwd: i.data,
		stopSignal: syscall.SIGTERM, killSignal: syscall.SIGKILL,
	}); err != nil {
		return err
	}
	return i.awaitReady(ctx, func(ctx context.Context) error { return pingGroups(ctx, i.url) })
}

// PingKafka reports an error unless a server among brokers, host:port
// separated by commas, tells who belongs to the cluster.
func PingKafka(ctx context.Context, brokers string) error {
	return withKafkaClient(ctx, brokers, func(ctx context.Context, client *kafka.Client) error {
		_, err := client.Metadata(ctx, &kafka.MetadataRequest{})
		return err
	})
}

// pingGroups reports an error unless groups can be joined. The first call
// makes the broker create the topic in which it keeps their offsets.
func pingGroups(ctx context.Context, brokers string) error {
	return withKafkaClient(ctx, brokers, func(ctx context.Context, client *kafka.Client) error {
		found, err := client.FindCoordinator(ctx, &kafka.FindCoordinatorRequest{
			Key: "ackafter-ping", KeyType: kafka.CoordinatorKeyTypeConsumer,
		})
		if err == nil {
			err = found.Error
		}
		return err
	})
}

func withKafkaClient(ctx context.Context, brokers string, use func(context.Context, *kafka.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	transport := &kafka.Transport{Context: ctx}
	defer transport.CloseIdleConnections()
	if err := use(ctx, &kafka.Client{Addr: kafka.TCP(splitBrokers(brokers)...), Transport: transport}); err != nil {
		return fmt.Errorf("ask Kafka at %s: %w", brokers, err)
	}
	return nil
}
