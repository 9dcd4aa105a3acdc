package kafka

import (
	"strconv"
	"strings"
)

// mark is the metadata of a committed offset. It says of which topic the offset
// is, for the group itself knows only the topic's name; and how many partitions
// the topic had when the group began to read it, so that those that were added
// since are known as new. What has no mark, because another client or an operator
// has committed it, is believed to be of the topic that there is.
type mark struct {
	id         topicID // zero when the brokers have none
	partitions int     // 0 when it is not known
}

const markBegin = "ackafter"

// String returns the metadata: "ackafter topic-id=Jx0q… partitions=3".
func (m mark) String() string {
	var b strings.Builder
	if m.id != (topicID{}) {
		b.WriteString(" topic-id=" + m.id.String())
	}
	if m.partitions > 0 {
		b.WriteString(" partitions=" + strconv.Itoa(m.partitions))
	}
	if b.Len() == 0 {
		return ""
	}
	return markBegin + b.String()
}

// parseMark reads metadata. What somebody else has written says nothing.
func parseMark(metadata string) (id string, partitions int) {
	words := strings.Fields(metadata)
	if len(words) == 0 || words[0] != markBegin {
		return "", 0
	}
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "topic-id":
			id = value
		case "partitions":
			if n, err := strconv.Atoi(value); err == nil && n > 0 {
				partitions = n
			}
		}
	}
	return id, partitions
}
