package kafka

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
)

var testID = topicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// topicsAnswered encodes what a broker answers.
func topicsAnswered(version int16) []byte {
	a := binary.BigEndian.AppendUint32(nil, correlation)
	a = append(a, 1, 7, 2, 'x', 'y')                          // a tagged field
	a = append(a, 0, 0, 0, 0)                                 // throttle
	a = append(a, 2, 0, 0, 0, 1, 2, 'h', 0, 0, 35, 132, 0, 0) // one broker
	a = append(a, 3, 'i', 'd', 0, 0, 0, 1)                    // cluster and controller
	a = append(a, 3)                                          // two topics
	a = append(append(a, 0, 0, 7, 'o', 'r', 'd', 'e', 'r', 's'), testID[:]...)
	a = append(a, 0, 3) // two partitions
	for range 2 {
		a = append(a, make([]byte, 2+4+4+4)...)
		a = append(a, 3, 0, 0, 0, 1, 0, 0, 0, 2, 2, 0, 0, 0, 1, 1, 0)
	}
	a = append(a, 0, 0, 0, 0, 0)
	a = append(append(a, 0, 3, 5, 'g', 'o', 'n', 'e'), make([]byte, 16)...)
	a = append(a, 0, 1, 0, 0, 0, 0, 0)
	if version <= 10 {
		a = append(a, 0, 0, 0, 0)
	}
	return append(a, 0)
}

func TestParseTopics(t *testing.T) {
	t.Parallel()
	want := []topicState{{name: "orders", id: testID, partitions: 2}, {name: "gone", err: kafka.UnknownTopicOrPartition}}
	for version := int16(metadataWithIDs); version <= metadataNewest; version++ {
		whole := topicsAnswered(version)
		got, err := parseTopics(whole, version)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("version %d: %+v, %v; want %+v", version, got, err, want)
		}
		for n := range len(whole) { // never a panic
			if _, err := parseTopics(whole[:n], version); err == nil {
				t.Errorf("version %d: %d bytes of %d are accepted", version, n, len(whole))
			}
		}
		whole[3]++
		if _, err := parseTopics(whole, version); err == nil || !strings.Contains(err.Error(), "answers the request") {
			t.Errorf("version %d: the answer to another request: %v", version, err)
		}
	}
}

func TestTopicIDString(t *testing.T) {
	t.Parallel()
	if got, want := testID.String(), "AQIDBAUGBwgJCgsMDQ4PEA"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (topicID{}).String(); got != "" {
		t.Errorf("the zero id is %q", got)
	}
}

func FuzzParseTopics(f *testing.F) {
	f.Add(topicsAnswered(12), int16(12))
	f.Fuzz(func(_ *testing.T, answer []byte, version int16) {
		_, _ = parseTopics(answer, version) // never a panic
	})
}
