//go:build unix

package main

import (
	"context"
	"path/filepath"

	"github.com/ackafter/ackafter/internal/servers"
)

// service is a kind of server. To add one, implement this, list it in
// allServices, and add it to compose.yaml.
type service interface {
	// name is also that of the directory and of the service in compose.yaml.
	name() string
	// variable of the environment holds the address.
	variable() string
	// programs are what startNative needs.
	programs() []string
	// startNative starts a private server, which outlives this process if
	// detached.
	startNative(ctx context.Context, dir string, detached bool) (instance, error)
	// containerPort is the server's port in its container.
	containerPort() string
	// containerURL makes an address from the host and port of a container.
	containerURL(hostPort string) string
	// optional services may be missing: the tests that need them are skipped
	// then, and the output says so. With CI=true nothing may be missing.
	optional() bool
	// ping reports an error unless the server accepts a login.
	ping(ctx context.Context, url string) error
}

// instance is a running server.
type instance interface {
	URL() string
	Close() error
}

func allServices() []service { return []service{postgreSQL{}, rabbitMQ{}, apacheKafka{}} }

type postgreSQL struct{}

func (postgreSQL) name() string          { return "postgresql" }
func (postgreSQL) variable() string      { return "DATABASE_URL" }
func (postgreSQL) programs() []string    { return []string{"initdb", "postgres"} }
func (postgreSQL) optional() bool        { return false }
func (postgreSQL) containerPort() string { return "5432" }

func (postgreSQL) containerURL(hostPort string) string {
	return "postgres://postgres@" + hostPort + "/postgres?sslmode=disable"
}

func (postgreSQL) startNative(ctx context.Context, dir string, detached bool) (instance, error) {
	return servers.StartPostgreSQL(ctx, dir, servers.PostgreSQLConfig{Detached: detached})
}

func (postgreSQL) ping(ctx context.Context, url string) error {
	return servers.PingPostgreSQL(ctx, url)
}

type rabbitMQ struct{}

func (rabbitMQ) name() string          { return "rabbitmq" }
func (rabbitMQ) variable() string      { return "AMQP_URL" }
func (rabbitMQ) programs() []string    { return []string{"rabbitmq-server", "epmd"} }
func (rabbitMQ) optional() bool        { return false }
func (rabbitMQ) containerPort() string { return "5672" }

func (rabbitMQ) containerURL(hostPort string) string { return "amqp://guest:guest@" + hostPort + "/" }

func (rabbitMQ) startNative(ctx context.Context, dir string, detached bool) (instance, error) {
	return servers.StartRabbitMQ(ctx, dir, servers.RabbitMQConfig{Detached: detached})
}

func (rabbitMQ) ping(ctx context.Context, url string) error { return servers.PingRabbitMQ(ctx, url) }

type apacheKafka struct{}

func (apacheKafka) name() string          { return "kafka" }
func (apacheKafka) variable() string      { return "KAFKA_BROKERS" }
func (apacheKafka) programs() []string    { return []string{"java", "mvn"} }
func (apacheKafka) optional() bool        { return true } // Java and its jars are much to ask for
func (apacheKafka) containerPort() string { return "9092" }

func (apacheKafka) containerURL(hostPort string) string { return hostPort }

func (apacheKafka) startNative(ctx context.Context, dir string, detached bool) (instance, error) {
	return servers.StartKafka(ctx, dir, servers.KafkaConfig{Detached: detached})
}

func (apacheKafka) ping(ctx context.Context, url string) error { return servers.PingKafka(ctx, url) }

// directory returns where a service of a set lives.
func directory(set string, s service) string { return filepath.Join(set, s.name()) }
