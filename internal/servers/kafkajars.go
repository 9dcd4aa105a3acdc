//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// KafkaVersion is the version of Apache Kafka that StartKafka starts.
const KafkaVersion = "4.1.0"

// kafkaPOM makes Maven fetch the broker. It names no repository: where Maven
// gets it from is a matter of the machine's settings. The second dependency
// writes the log.
const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ackafter</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>` + KafkaVersion + `</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
`

// kafkaJars returns the directory with the jars of Kafka. The first call on a
// machine fetches them, about 45 MB, into the user's cache.
func kafkaJars(ctx context.Context) (jars string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "ackafter")
	jars = filepath.Join(dir, "kafka-"+KafkaVersion)
	if complete, err := isDirectory(jars); err != nil || complete {
		return jars, err
	}
	lock, err := WaitLock(ctx, filepath.Join(dir, "kafka.lock"), func() {})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if complete, err := isDirectory(jars); err != nil || complete {
		return jars, err // somebody else has fetched them meanwhile
	}
	return jars, fetchKafka(ctx, dir, jars)
}

func fetchKafka(ctx context.Context, dir, jars string) (err error) {
	maven, err := Binary("mvn")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(dir, "kafka-")
	if err != nil {
		return fmt.Errorf("create a directory for the jars of Kafka: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	pom := filepath.Join(work, "pom.xml")
	if err := os.WriteFile(pom, []byte(kafkaPOM), 0o600); err != nil {
		return fmt.Errorf("write what Maven is to fetch: %w", err)
	}
	unfinished := filepath.Join(work, "jars")
	cmd := exec.CommandContext(ctx, maven, "--batch-mode", "--quiet", "--file", pom,
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+unfinished)
	cmd.Dir = work
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch Kafka %s with Maven: %w\n%s", KafkaVersion, err, strings.TrimSpace(string(output)))
	}
	// Renamed into place: a crash never leaves half of the jars there.
	if err := os.Rename(unfinished, jars); err != nil {
		return fmt.Errorf("keep the jars of Kafka: %w", err)
	}
	return nil
}

func isDirectory(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.IsDir(), err
}
