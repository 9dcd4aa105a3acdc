package failures

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// Data is bytes that a producer sent. As JSON it is an object with one member:
// "text" where the bytes are UTF-8 without control characters other than tab,
// line feed and carriage return, and "base64" (RFC 4648 with padding) for all
// others. Nil is null. No two values of Data have the same JSON.
type Data []byte

// MarshalJSON implements json.Marshaler.
func (d Data) MarshalJSON() ([]byte, error) {
	if d == nil {
		return []byte("null"), nil
	}
	if !isText(d) {
		return []byte(`{"base64":"` + base64.StdEncoding.EncodeToString(d) + `"}`), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // for the reader's sake
	if err := e.Encode(struct {
		Text string `json:"text"`
	}{string(d)}); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Data) UnmarshalJSON(data []byte) error {
	var v *struct {
		Text   *string `json:"text"`
		Base64 *[]byte `json:"base64"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	switch {
	case v == nil:
		*d = nil
	case v.Text != nil && v.Base64 == nil:
		*d = Data(*v.Text)
		if *d == nil {
			*d = Data{}
		}
	case v.Base64 != nil && v.Text == nil:
		*d = *v.Base64
	default:
		return errors.New(`failures: data must be null, {"text": …} or {"base64": …}`)
	}
	return nil
}

func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return utf8.Valid(b)
}
