package failures_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/failures"
)

func TestDataAsJSON(t *testing.T) {
	for _, c := range []struct {
		data failures.Data
		json string
	}{
		{nil, `null`},
		{failures.Data{}, `{"text":""}`},
		{failures.Data("a <b> & \"c\"\n\t\r"), `{"text":"a <b> & \"c\"\n\t\r"}`},
		{failures.Data("né 日本 \uFFFD"), `{"text":"né 日本 ` + "\uFFFD" + `"}`},
		{failures.Data("a\x00"), `{"base64":"YQA="}`},
		{failures.Data("\x1b[31m"), `{"base64":"G1szMW0="}`},
		{failures.Data("\xff"), `{"base64":"/w=="}`},
		{failures.Data("\u2028"), `{"text":"\u2028"}`},
	} {
		got, err := c.data.MarshalJSON()
		require.NoError(t, err)
		require.Equal(t, c.json, string(got))
		back := failures.Data("left over")
		require.NoError(t, json.Unmarshal(got, &back))
		require.Equal(t, c.data, back)
	}
	for _, bad := range []string{`{}`, `"text"`, `{"text":"a","base64":"YQ=="}`, `{"base64":"?"}`, `{"text":1}`} {
		var d failures.Data
		require.Error(t, json.Unmarshal([]byte(bad), &d), bad)
	}
}

// FuzzData keeps that no bytes are lost on the way.
func FuzzData(f *testing.F) {
	f.Add([]byte("a\x00\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		data, err := json.Marshal(failures.Data(b))
		require.NoError(t, err)
		var back failures.Data
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, failures.Data(b), back)
	})
}

// Each line is what Get returns.
func TestExport(t *testing.T) {
	b := newBench(t, failures.Config{})
	odd, tombstone := failure("m1", forGood), failure("m2\n\"é", time.Hour)
	odd.Message.Key, odd.Message.Body = []byte("\xff"), []byte("a\x00b\xff")
	odd.Message.Headers = consumer.Headers{{Key: "k", Value: nil}, {Key: "\xff", Value: []byte{}}, {Key: "k", Value: []byte("<v>")}}
	odd.Message.Time = time.Now().Truncate(time.Microsecond)
	tombstone.Message.Body = nil
	b.setAside(subscriber, odd, tombstone, failure("m3", 0))
	b.setAside("shipping", failure("m1", forGood))
	var out bytes.Buffer
	require.NoError(t, b.Export(b.ctx, &out, failures.Filter{Subscriber: subscriber}))
	text := out.String()
	require.Contains(t, text, `"headers":[{"key":{"text":"k"},"value":null},{"key":{"base64":"/w=="},"value":{"text":""}},{"key":{"text":"k"},"value":{"text":"<v>"}}]`)
	require.Contains(t, text, `"body":{"text":"body of m3"}`)
	lines := bufio.NewScanner(&out)
	for _, id := range []string{"m1", "m2\n\"é", "m3"} {
		require.True(t, lines.Scan())
		var got failures.Message
		require.NoError(t, json.Unmarshal(lines.Bytes(), &got))
		want, err := b.Get(b.ctx, subscriber, id)
		require.NoError(t, err)
		for _, at := range []*time.Time{&want.FailedAt, &want.LastFailedAt, &want.NextAttempt, &want.Time} {
			*at = at.UTC()
		}
		for _, at := range []*time.Time{&got.FailedAt, &got.LastFailedAt, &got.NextAttempt, &got.Time} {
			*at = at.UTC()
		}
		require.Equal(t, want, &got)
	}
	require.False(t, lines.Scan())

	out.Reset()
	require.NoError(t, b.Export(b.ctx, &out, failures.Filter{Subscriber: "nobody"}))
	require.Empty(t, out.String())
}

// Export's pages end anywhere among messages of one time.
func TestExportOfManyPages(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.fill(2100)
	b.MustExec(t, "update %s.failed_messages set failed_at = date_trunc('hour', failed_at)")
	for _, f := range []failures.Filter{{}, {Subscriber: "s3"}} {
		var out strings.Builder
		require.NoError(t, b.Export(b.ctx, &out, f))
		list, err := b.List(b.ctx, f, failures.Page{Limit: failures.MaxLimit})
		require.NoError(t, err)
		var got []string
		for line := range strings.Lines(out.String()) {
			var m failures.Message
			require.NoError(t, json.Unmarshal([]byte(line), &m))
			got = append(got, m.Subscriber+"/"+m.ID)
		}
		require.Equal(t, ids(list), got)
	}
}

// writer looks at each line before it is gone.
type writer func(line []byte) error

func (w writer) Write(line []byte) (int, error) { return len(line), w(line) }

// 64 MB go through little memory, with no connection held in between.
func TestExportNeedsLittleMemory(t *testing.T) {
	b := newBench(t, failures.Config{})
	const messages = 64
	b.fill(messages)
	b.MustExec(t, "update %s.failed_messages set body = convert_to(repeat('x', 1 << 20), 'UTF8')")
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, peak, lines := live(), int64(0), 0
	err := b.Export(b.ctx, writer(func(line []byte) error {
		require.Greater(t, len(line), 1<<20)
		require.Zero(t, b.Int(t, `select count(*) from pg_stat_activity where position('%s' in query) > 0 and xact_start is not null and backend_type = 'client backend'
	and pid <> pg_backend_pid()`))
		if lines++; lines%10 == 0 {
			peak = max(peak, live()-before)
		}
		return nil
	}), failures.Filter{})
	require.NoError(t, err)
	require.Equal(t, messages, lines)
	t.Logf("%d MB of live heap at most", peak>>20)
	require.Less(t, peak, int64(24<<20))
}

func TestExportThatCannotWrite(t *testing.T) {
	b := newBench(t, failures.Config{})
	b.fill(10)
	full := errors.New("disk full")
	n := 0
	err := b.Export(b.ctx, writer(func([]byte) error {
		if n++; n == 3 {
			return full
		}
		return nil
	}), failures.Filter{})
	require.ErrorIs(t, err, full)
	require.ErrorContains(t, err, fmt.Sprintf("%q", "m000003"))
}
