//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// kafkaClusterID can be the same for all clusters, since each is alone.
const kafkaClusterID = "ackafterAAAAAAAAAAAAAA"

// javaArguments keep the virtual machine small, and its start short: the
// second compiler pays only for a server that runs for long.
func javaArguments(jars, class string, args ...string) []string {
	return append([]string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dlog4j2.level=WARN", "-cp", filepath.Join(jars, "*"), class,
	}, args...)
}

func (k *Kafka) propertiesFile() string { return filepath.Join(k.instance.data, "server.properties") }

// writeFiles writes the configuration, and formats the storage the first time.
func (k *Kafka) writeFiles(ctx context.Context, java, jars string) error {
	if err := os.MkdirAll(k.instance.data, 0o700); err != nil {
		return fmt.Errorf("create the directory of Kafka: %w", err)
	}
	if err := os.WriteFile(k.propertiesFile(), []byte(k.properties()), 0o600); err != nil {
		return fmt.Errorf("configure Kafka: %w", err)
	}
	logs := filepath.Join(k.instance.data, "logs")
	formatted := filepath.Join(k.instance.data, "formatted")
	if _, err := os.Stat(formatted); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A crash during the first start may leave half a format.
	if err := os.RemoveAll(logs); err != nil {
		return fmt.Errorf("remove an unfinished storage of Kafka: %w", err)
	}
	format := exec.CommandContext(ctx, java, javaArguments(jars, "kafka.tools.StorageTool",
		"format", "--cluster-id", kafkaClusterID, "--config", k.propertiesFile())...)
	format.Env = childEnvironment(nil)
	if output, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("format the storage of Kafka: %w\n%s", err, strings.TrimSpace(string(output)))
	}
	if err := os.WriteFile(formatted, nil, 0o600); err != nil {
		return fmt.Errorf("note that the storage of Kafka is formatted: %w", err)
	}
	return nil
}

func (k *Kafka) properties() string {
	broker, controller := loopback(k.instance.port(kafkaPort)), loopback(k.instance.port(controllerPort))
	settings := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        "1",
		"controller.quorum.voters":       "1@" + controller,
		"listeners":                      "BROKER://" + broker + ",CONTROLLER://" + controller,
		"advertised.listeners":           "BROKER://" + broker,
		"listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":     "BROKER",
		"controller.listener.names":      "CONTROLLER",
		"log.dirs":                       filepath.Join(k.instance.data, "logs"),
		// A topic that a typo creates would look like one that is empty.
		"auto.create.topics.enable": "false",
		// Members come and go often in tests.
		"group.initial.rebalance.delay.ms": "0",
		"group.min.session.timeout.ms":     "1000",
	}
	// What has a default of 50 partitions on three nodes.
	for _, topic := range []string{"offsets.topic.", "transaction.state.log.", "share.coordinator.state.topic."} {
		settings[topic+"num.partitions"] = strconv.Itoa(3)
		settings[topic+"replication.factor"] = strconv.Itoa(1)
	}
	settings["transaction.state.log.min.isr"] = "1"
	settings["share.coordinator.state.topic.min.isr"] = "1"
	for _, l := range k.config.Listeners {
		for name, value := range map[string]string{
			"listeners":                      l.Name + "://" + l.Address,
			"advertised.listeners":           l.Name + "://" + l.Address,
			"listener.security.protocol.map": l.Name + ":" + l.Protocol,
		} {
			settings[name] += "," + value
		}
	}
	maps.Copy(settings, k.config.Settings)
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		lines.WriteString(name + "=" + settings[name] + "\n")
	}
	return lines.String()
}
