//go:build unix

package servers

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// erlangArguments keep the virtual machine small and quiet. Its schedulers
// spin while they wait (sbwt), which takes the processor from the test.
const erlangArguments = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none" +
	" -start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"

// environment points the server at files of its own, so that nothing of a
// RabbitMQ installed on the machine is read or written.
func (r *RabbitMQ) environment() []string {
	i := r.instance
	in := func(name string) string { return filepath.Join(i.data, name) }
	return append(r.epmdEnvironment(), environment(
		"HOME", in("home"), // for .erlang.cookie
		"RABBITMQ_NODENAME", rabbitMQNode,
		"RABBITMQ_NODE_PORT", strconv.Itoa(i.port(amqpPort)),
		"RABBITMQ_DIST_PORT", strconv.Itoa(i.port(distributionPort)),
		"RABBITMQ_MNESIA_BASE", in("mnesia"),
		"RABBITMQ_LOG_BASE", in("log"),
		"RABBITMQ_PID_FILE", in("rabbitmq.pid"),
		"RABBITMQ_CONF_ENV_FILE", in("rabbitmq-env.conf"),
		"RABBITMQ_CONFIG_FILE", in("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE", in("advanced.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE", in("enabled_plugins"),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", erlangArguments,
		// The start script then replaces itself by the server, instead of
		// waiting for it: signals reach the server, and it is our child.
		"RUNNING_UNDER_SYSTEMD", "true",
	)...)
}

func (r *RabbitMQ) writeFiles() error {
	i := r.instance
	for _, name := range []string{"home", "mnesia", "log"} {
		if err := os.MkdirAll(filepath.Join(i.data, name), 0o700); err != nil {
			return fmt.Errorf("create the directories of RabbitMQ: %w", err)
		}
	}
	for name, content := range map[string]string{
		"rabbitmq-env.conf": "",
		"advanced.config":   "[].\n",
		"enabled_plugins":   "[].\n",
		"rabbitmq.conf":     r.configuration(),
	} {
		if err := os.WriteFile(filepath.Join(i.data, name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("configure RabbitMQ: %w", err)
		}
	}
	// A crash during the first start may leave an empty cookie, on which
	// every later start would fail.
	cookie := filepath.Join(i.data, "home", ".erlang.cookie")
	info, err := os.Stat(cookie)
	if err == nil && info.Size() == 0 {
		err = os.Remove(cookie)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("check the Erlang cookie: %w", err)
	}
	return nil
}

func (r *RabbitMQ) configuration() string {
	timeout := r.config.ConsumerTimeout
	if timeout == 0 {
		timeout = 30 * time.Minute
	}
	settings := map[string]string{
		"listeners.tcp.1":                   loopback(r.instance.port(amqpPort)),
		"num_acceptors.tcp":                 "2",
		"consumer_timeout":                  strconv.FormatInt(timeout.Milliseconds(), 10),
		"disk_free_limit.absolute":          "50MB",
		"vm_memory_high_watermark.relative": "0.8",
		"log.console":                       "true",
		"log.console.level":                 "info",
		"log.file":                          "false",
	}
	maps.Copy(settings, r.config.Settings)
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		lines.WriteString(name + " = " + settings[name] + "\n")
	}
	return lines.String()
}
