package rabbitmq

import (
	"math"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// RabbitMQ itself does not let these through; other brokers may.
func TestRenderWhatJSONCannotExpress(t *testing.T) {
	for want, v := range map[string]any{
		"NaN":                       math.NaN(),
		"-Inf":                      float32(math.Inf(-1)),
		`["NaN"]`:                   []any{math.NaN()},
		`{"":"+Inf"}`:               amqp.Table{"": float32(math.Inf(1))},
		`["30828-09-14T02:48:05Z"]`: []any{time.Unix(910692730085, 0)},
		`["a\ufffdb"]`:              []any{"a\xffb"},
	} {
		if got := string(renderValue(v)); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}
