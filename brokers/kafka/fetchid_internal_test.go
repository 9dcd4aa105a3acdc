package kafka

import (
	"encoding/binary"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// answerWithID encodes what a broker answers to a fetch of version 13.
func answerWithID(code int16, records string) []byte {
	a := binary.BigEndian.AppendUint32(nil, correlation)
	a = append(a, 0, 0, 0, 0, 0)    // tags, throttle
	a = append(a, 0, 0, 0, 0, 0, 0) // error, session
	a = append(append(a, 2), testID[:]...)
	a = append(a, 2, 0, 0, 0, 3) // one partition
	a = binary.BigEndian.AppendUint16(a, uint16(code))
	for _, offset := range []uint64{100, 90, 2} {
		a = binary.BigEndian.AppendUint64(a, offset)
	}
	a = append(a, 2) // one aborted transaction
	a = binary.BigEndian.AppendUint64(a, 9)
	a = binary.BigEndian.AppendUint64(a, 50)
	a = append(a, 0, 0, 0, 0, 4)
	a = appendCount(a, len(records))
	return append(append(a, records...), 0, 0, 0)
}

func TestParseFetchedWithID(t *testing.T) {
	t.Parallel()
	whole := answerWithID(100, "records")
	r, err := parseFetchedWithID(whole, testID)
	if err != nil {
		t.Fatal(err)
	}
	if r.err != kafka.UnknownTopicID || !r.byID || r.watermark != 100 || r.stable != 90 || r.start != 2 || r.replica != 4 ||
		len(r.aborted) != 1 || r.aborted[0] != (transaction{9, 50}) || string(r.records) != "records" {
		t.Errorf("%+v", r)
	}
	for n := range len(whole) { // never a panic
		if _, err := parseFetchedWithID(whole[:n], testID); err == nil {
			t.Errorf("%d bytes of %d are accepted", n, len(whole))
		}
	}
	if _, err := parseFetchedWithID(whole, topicID{1}); err == nil || !strings.Contains(err.Error(), testID.String()) {
		t.Errorf("the answer for another topic: %v", err)
	}
	if r.cut != -1 {
		t.Errorf("the log differs from %d on, and the answer does not say so", r.cut)
	}
	diverging := append([]byte{1, 0, 13, 0, 0, 0, 4}, 0, 0, 0, 0, 0, 0, 0, 77, 0) // one tag: an epoch, its end
	diverging = append(append(whole[:len(whole)-3:len(whole)-3], diverging...), 0, 0)
	if r, err := parseFetchedWithID(diverging, testID); err != nil || r.cut != 77 {
		t.Errorf("the log differs from %+v on (%v), want 77", r, err)
	}
	whole[3]++
	if _, err := parseFetchedWithID(whole, testID); err == nil || !strings.Contains(err.Error(), "answers the request") {
		t.Errorf("the answer to another request: %v", err)
	}
}

func FuzzParseFetchedWithID(f *testing.F) {
	f.Add(answerWithID(0, "records"))
	f.Fuzz(func(_ *testing.T, answer []byte) {
		_, _ = parseFetchedWithID(answer, testID) // never a panic
	})
}

// broker answers requests from a script.
type broker struct {
	answers  [][]byte
	requests []int16 // their keys
	reading  []byte
}

func (b *broker) Write(request []byte) (int, error) {
	b.requests = append(b.requests, int16(binary.BigEndian.Uint16(request[4:])))
	b.reading = binary.BigEndian.AppendUint32(b.reading, uint32(len(b.answers[0])))
	b.reading = append(b.reading, b.answers[0]...)
	b.answers = b.answers[1:]
	return len(request), nil
}

func (b *broker) Read(p []byte) (int, error) {
	if len(b.reading) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, b.reading)
	b.reading = b.reading[n:]
	return n, nil
}

func (b *broker) wants(t *testing.T, keys ...protocol.ApiKey) {
	t.Helper()
	got := b.requests
	b.requests = nil
	if len(got) != len(keys) {
		t.Fatalf("the requests are %v, want %v", got, keys)
	}
	for i := range keys {
		if protocol.ApiKey(got[i]) != keys[i] {
			t.Fatalf("the requests are %v, want %v", got, keys)
		}
	}
}

// versions encodes an answer that tells the newest version of a request.
func versions(t *testing.T, key protocol.ApiKey, newest int16) []byte {
	var b strings.Builder
	err := protocol.WriteResponse(&b, 0, correlation, &apiversions.Response{
		ApiKeys: []apiversions.ApiKeyResponse{{ApiKey: int16(key), MaxVersion: newest}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return []byte(b.String()[4:])
}

// A fetch names the topic by its id where the broker can, and asks for that
// once.
func TestFetchByID(t *testing.T) {
	t.Parallel()
	for newest, byID := range map[int16]bool{11: false, 12: false, 13: true, 18: true} {
		f := &fetch{clientID: "me", version: 11, id: testID, newest: &atomic.Int32{}, Request: fetchapi.Request{
			Topics: []fetchapi.RequestTopic{{Topic: "t", Partitions: []fetchapi.RequestPartition{{Partition: 3}}}},
		}}
		plain := answer(11, 0, []byte("records"))
		if byID {
			plain = answerWithID(0, "records")
		}
		b := &broker{answers: [][]byte{versions(t, protocol.Fetch, newest), plain, plain}}
		for _, keys := range [][]protocol.ApiKey{{protocol.ApiVersions, protocol.Fetch}, {protocol.Fetch}} {
			got, err := f.RawExchange(b)
			if err != nil {
				t.Fatalf("version %d: %v", newest, err)
			}
			if r := got.(*fetched); r.byID != byID || string(r.records) != "records" {
				t.Errorf("version %d: %+v", newest, r)
			}
			b.wants(t, keys...)
		}
	}
}

// A broker without topic ids is asked no more than for its versions.
func TestTopicsOfAnOldBroker(t *testing.T) {
	t.Parallel()
	for newest, ids := range map[int16]bool{9: false, 10: true, 13: true} {
		b := &broker{answers: [][]byte{versions(t, protocol.Metadata, newest), topicsAnswered(min(newest, metadataNewest))}}
		got, err := (&topicsRequest{names: []string{"orders", "gone"}}).RawExchange(b)
		if err != nil {
			t.Fatal(err)
		}
		if topics := got.(*topicsAnswer).topics; ids != (len(topics) == 2) {
			t.Errorf("version %d: %+v", newest, topics)
		}
	}
}
