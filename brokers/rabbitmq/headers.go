package rabbitmq

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/consumer"
)

// renderHeaders renders an AMQP table, which has types but no order, as
// headers sorted by key. Strings and byte arrays stay as they are; integers,
// floats, decimals and booleans become their text, times RFC 3339 in UTC, void
// empty, and nested tables and arrays JSON.
func renderHeaders(t amqp.Table) consumer.Headers {
	if len(t) == 0 {
		return nil
	}
	h := make(consumer.Headers, 0, len(t))
	for _, key := range slices.Sorted(maps.Keys(t)) {
		h = append(h, consumer.Header{Key: key, Value: renderValue(t[key])})
	}
	return h
}

func renderValue(v any) []byte {
	switch v := v.(type) {
	case nil:
		return []byte{}
	case string:
		return []byte(v)
	case []byte:
		return v
	case amqp.Table, []any:
		return renderJSON(v)
	}
	return []byte(renderScalar(v))
}

func renderScalar(v any) string {
	switch v := v.(type) {
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case amqp.Decimal:
		return renderDecimal(v)
	}
	return fmt.Sprint(v) // booleans and integers
}

// renderDecimal returns Value / 10^Scale with Scale decimals.
func renderDecimal(d amqp.Decimal) string {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.Scale)), nil)
	return new(big.Rat).SetFrac(big.NewInt(int64(d.Value)), scale).FloatString(int(d.Scale))
}

// renderJSON renders a table or an array. Byte arrays become base64, as
// encoding/json has it; what JSON cannot express becomes a string.
func renderJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(jsonValue(v)); err != nil {
		// jsonValue leaves nothing that could fail; a type that is new in the
		// client would, and is better shown than lost.
		return fmt.Append(nil, v)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func jsonValue(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[key] = jsonValue(value)
		}
		return m
	case []any:
		a := make([]any, len(v))
		for i, value := range v {
			a[i] = jsonValue(value)
		}
		return a
	case float32:
		return jsonFloat(float64(v), renderScalar(v))
	case float64:
		return jsonFloat(v, renderScalar(v))
	case amqp.Decimal:
		return json.Number(renderDecimal(v))
	case time.Time:
		return renderScalar(v)
	}
	return v
}

func jsonFloat(v float64, text string) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return text
	}
	return json.Number(text)
}
