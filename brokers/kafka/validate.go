package kafka

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"time"
)

// refusal notes a mistake in a field.
type refusal func(field, format string, args ...any)

// validate returns every mistake in c, joined, each naming its field.
func (c Config) validate() error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("kafka: Config."+field+" "+format, args...))
	}
	c.validateNames(refuse)
	if c.Start > StartLast {
		refuse("Start", "is %v: it must be StartFirst or StartLast", c.Start)
	}
	if c.OutOfRange > OutOfRangeLast {
		refuse("OutOfRange", "is %v: it must be OutOfRangeFail, OutOfRangeFirst or OutOfRangeLast", c.OutOfRange)
	}
	if c.Window < 0 {
		refuse("Window", "is %d: it must not be negative", c.Window)
	}
	if c.FetchBytes < 0 || c.FetchBytes > math.MaxInt32 {
		refuse("FetchBytes", "is %d: it must be between 1 and %d, or zero for the default", c.FetchBytes, math.MaxInt32)
	}
	if c.MaxBatchBytes < 0 {
		refuse("MaxBatchBytes", "is %d: it must not be negative", c.MaxBatchBytes)
	}
	c.validateTimes(refuse)
	return errors.Join(errs...)
}

// topicName is what Kafka allows.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (c Config) validateNames(refuse refusal) {
	if len(c.Brokers) == 0 {
		refuse("Brokers", "is empty: it must hold at least one broker, as host:port")
	}
	for i, broker := range c.Brokers {
		if host, port, err := net.SplitHostPort(broker); err != nil || host == "" || port == "" {
			refuse(fmt.Sprintf("Brokers[%d]", i), "is %q: it must read host:port", broker)
		}
	}
	if c.Group == "" {
		refuse("Group", "is empty: it names the consumer group")
	}
	if len(c.Topics) == 0 {
		refuse("Topics", "is empty: it names what to read")
	}
	for i, topic := range c.Topics {
		if !topicName.MatchString(topic) || topic == "." || topic == ".." {
			refuse(fmt.Sprintf("Topics[%d]", i), "is %q: a topic has 1 to 249 letters, digits, '.', '_' and '-'", topic)
		}
		if slices.Contains(c.Topics[:i], topic) {
			refuse(fmt.Sprintf("Topics[%d]", i), "repeats %q", topic)
		}
	}
}

// validateTimes reports the mistakes in the time limits.
func (c Config) validateTimes(refuse refusal) {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"FetchWait", c.FetchWait}, {"CommitInterval", c.CommitInterval}, {"SessionTimeout", c.SessionTimeout},
		{"HeartbeatInterval", c.HeartbeatInterval}, {"RebalanceTimeout", c.RebalanceTimeout},
		{"WatchInterval", c.WatchInterval}, {"DialTimeout", c.DialTimeout}, {"RequestTimeout", c.RequestTimeout},
		{"CloseTimeout", c.CloseTimeout}, {"BackoffMin", c.BackoffMin}, {"BackoffMax", c.BackoffMax},
	} {
		if d.value < 0 || d.value.Milliseconds() > math.MaxInt32 {
			refuse(d.field, "is %v: it must be between zero and %v", d.value, math.MaxInt32*time.Millisecond)
		}
		if d.value > 0 && d.value < time.Millisecond {
			refuse(d.field, "is %v: Kafka counts in milliseconds", d.value)
		}
	}
	full := c.withDefaults()
	if full.HeartbeatInterval >= full.SessionTimeout {
		refuse("HeartbeatInterval", "is %v: it must be below SessionTimeout, %v; a third of it is usual", full.HeartbeatInterval, full.SessionTimeout)
	}
	if c.BackoffMax != 0 && c.BackoffMax < c.BackoffMin {
		refuse("BackoffMax", "is %v: it must not be less than BackoffMin, %v", c.BackoffMax, c.BackoffMin)
	}
}
