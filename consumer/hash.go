package consumer

import "crypto/sha256"

// hashBytes is what the column payload_hash takes.
const hashBytes = 16

// HashBody chooses the whole body.
func HashBody(m *Message) []byte {
	if m.Body == nil {
		return []byte{} // a tombstone is a body like any other
	}
	return m.Body
}

// HashNothing chooses nothing: any message with the id counts as the same.
func HashNothing(*Message) []byte { return nil }

// digest is what the inbox remembers of the chosen part of a message.
type digest [sha256.Size]byte

// of sets d, and returns what of it counts.
func (d *digest) of(chosen []byte) []byte {
	if chosen == nil {
		return nil
	}
	*d = sha256.Sum256(chosen)
	return d[:hashBytes:hashBytes]
}
