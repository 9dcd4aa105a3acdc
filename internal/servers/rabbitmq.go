//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	rabbitMQStartLimit = 2 * time.Minute

	// rabbitMQNode can be the same for all nodes, since each one registers in
	// a name service of its own. A fixed name lets a node find its data again.
	rabbitMQNode = "ackafter@localhost"

	// The ports of an instance.
	amqpPort         = 0
	distributionPort = 1 // Erlang's, used by nobody
	epmdPort         = 2 // Erlang's name service
	rabbitMQPorts    = 3
)

// RabbitMQConfig configures a private RabbitMQ server. The zero value is good
// for tests.
type RabbitMQConfig struct {
	// ConsumerTimeout is how long a consumer may leave a delivery without an
	// acknowledgement; the broker checks it about once a minute. Zero means
	// RabbitMQ's default of 30 minutes.
	ConsumerTimeout time.Duration
	// Settings are further lines of rabbitmq.conf.
	Settings map[string]string
	// Detached lets the server outlive this process.
	Detached bool
}

// RabbitMQ is a private RabbitMQ server. Its methods may be called from several
// goroutines.
type RabbitMQ struct {
	instance *instance
	config   RabbitMQConfig
}

// StartRabbitMQ starts a server with its data below dir, and returns when it
// accepts a login, which takes several seconds. When it finds data of an
// earlier server there, it uses them.
func StartRabbitMQ(ctx context.Context, dir string, config RabbitMQConfig) (*RabbitMQ, error) {
	i, err := openInstance(ctx, "rabbitmq", dir, rabbitMQPorts, config.Detached)
	if err != nil {
		return nil, err
	}
	r := &RabbitMQ{instance: i, config: config}
	i.data = filepath.Join(i.dir, dataName)
	if err := r.Start(ctx); err != nil {
		return nil, errors.Join(err, i.release())
	}
	return r, nil
}

// URL returns the server's address. It stays the same over Stop, Kill and
// Start.
func (r *RabbitMQ) URL() string { return r.instance.url }

// Start starts the server again after Stop or Kill, and returns when it
// accepts a login.
func (r *RabbitMQ) Start(ctx context.Context) error {
	return r.instance.start(ctx, rabbitMQStartLimit, r.attempt)
}

// Stop shuts the server down in an orderly way. Durable queues and their
// persistent messages remain.
func (r *RabbitMQ) Stop(ctx context.Context) error { return r.instance.stop(ctx, false) }

// Kill ends the server with SIGKILL. What it has confirmed survives in durable
// queues, except in one that was declared within the last second or so: RabbitMQ
// 3.10 sometimes forgets that one with its messages.
func (r *RabbitMQ) Kill(ctx context.Context) error { return r.instance.stop(ctx, true) }

// Close stops the server and deletes its data. Its log remains in dir.
func (r *RabbitMQ) Close() error { return r.instance.close(context.Background()) }

func (r *RabbitMQ) attempt(ctx context.Context) error {
	i := r.instance
	i.setURL("amqp://guest:guest@" + loopback(i.port(amqpPort)) + "/")
	server, err := Binary("rabbitmq-server")
	if err != nil {
		return err
	}
	if err := r.writeFiles(); err != nil {
		return err
	}
	if err := r.startEPMD(ctx); err != nil {
		return err
	}
	if _, err := i.launch(ctx, processSpec{
		name: "rabbitmq", path: server, env: r.environment(), cwd: i.data,
		stopSignal: syscall.SIGTERM, killSignal: syscall.SIGKILL,
	}); err != nil {
		return err
	}
	return i.awaitReady(ctx, func(ctx context.Context) error { return PingRabbitMQ(ctx, i.url) })
}

// startEPMD starts Erlang's name service. Otherwise the node would start one
// for the whole machine, which nobody would stop.
func (r *RabbitMQ) startEPMD(ctx context.Context) error {
	i := r.instance
	epmd, err := Binary("epmd")
	if err != nil {
		return err
	}
	if _, err := i.launch(ctx, processSpec{
		name: "epmd", path: epmd, env: r.epmdEnvironment(), cwd: i.data,
		stopSignal: syscall.SIGTERM, killSignal: syscall.SIGKILL,
	}); err != nil {
		return err
	}
	return i.awaitReady(ctx, func(ctx context.Context) error {
		// Without an answer from ours, the node would start its own.
		cmd := exec.CommandContext(ctx, epmd, "-names")
		cmd.Env = childEnvironment(r.epmdEnvironment())
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("epmd -names: %w: %s", err, output)
		}
		return nil
	})
}

func (r *RabbitMQ) epmdEnvironment() []string {
	return environment("ERL_EPMD_PORT", strconv.Itoa(r.instance.port(epmdPort)), "ERL_EPMD_ADDRESS", "127.0.0.1")
}

// PingRabbitMQ reports an error unless the server at url accepts a login.
func PingRabbitMQ(ctx context.Context, url string) error {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	dial := func(network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// For the login; the client's heartbeats take over after it.
		return conn, conn.SetDeadline(time.Now().Add(10 * time.Second))
	}
	conn, err := amqp.DialConfig(url, amqp.Config{Dial: dial})
	if err != nil {
		return fmt.Errorf("log in to RabbitMQ: %w", err)
	}
	channel, err := conn.Channel()
	if err != nil {
		return errors.Join(fmt.Errorf("open a channel: %w", err), conn.Close())
	}
	return errors.Join(channel.Close(), conn.Close())
}
