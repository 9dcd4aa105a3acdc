package servers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	modulePath = "github.com/ackafter/ackafter"

	// EnvFile is the file, relative to the root of the module, in which
	// `make services` leaves the addresses of the servers it started.
	EnvFile = ".services/env"
)

// DatabaseURL returns the address of the PostgreSQL server to use.
func DatabaseURL() (string, error) { return Lookup("DATABASE_URL") }

// AMQPURL returns the address of the RabbitMQ server to use.
func AMQPURL() (string, error) { return Lookup("AMQP_URL") }

// KafkaBrokers returns the addresses of the Kafka brokers to use.
func KafkaBrokers() ([]string, error) {
	brokers, err := Lookup("KAFKA_BROKERS")
	return splitBrokers(brokers), err
}

// splitBrokers takes host:port apart that are separated by commas.
func splitBrokers(brokers string) []string {
	return strings.FieldsFunc(brokers, func(r rune) bool { return r == ',' || r == ' ' })
}

// MissingVariable returns the name of the variable that says why an optional
// server, whose address would be in the named variable, is missing.
func MissingVariable(name string) string { return name + "_MISSING" }

// Missing returns why an optional server is missing: "" when it is not, or
// when nobody has tried to start it.
func Missing(name string) string {
	reason, err := Lookup(MissingVariable(name))
	if err != nil {
		return ""
	}
	return reason
}

// Lookup returns the value of the named variable: from the environment, else
// from the file which `make services` writes.
func Lookup(name string) (string, error) {
	if value := os.Getenv(name); value != "" {
		return value, nil
	}
	directory, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	return lookupBelow(directory, name)
}

// lookupBelow reads the file of the module that contains directory.
func lookupBelow(directory, name string) (string, error) {
	missing := fmt.Errorf("%s is not set and no server is running for this checkout: run `make services`, or set %s", name, name)
	root, err := ModuleRoot(directory)
	if err != nil {
		return "", missing
	}
	content, err := os.ReadFile(filepath.Join(root, EnvFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", missing
	}
	if err != nil {
		return "", fmt.Errorf("read the addresses left by `make services`: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && key == name && value != "" {
			return value, nil
		}
	}
	return "", missing
}

// ModuleRoot returns the root of this module's checkout, searched from
// directory upwards. Modules nested in the checkout, which have a go.mod of
// their own, are passed.
func ModuleRoot(directory string) (string, error) {
	for dir := directory; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && declaresModule(content) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no checkout of %s contains %s", modulePath, directory)
		}
	}
}

func declaresModule(goMod []byte) bool {
	lines := bufio.NewScanner(bytes.NewReader(goMod))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "module" {
			return fields[1] == modulePath
		}
	}
	return false
}
