package kafka

import "time"

// PartitionHealth is where a member stood in one of its partitions at one
// moment. Until it is known where to begin, every offset is negative, Lag is
// zero and so is Advanced.
type PartitionHealth struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	// Position is the offset after the last message that was delivered.
	Position int64 `json:"position"`
	// Settled is the offset below which every message is settled.
	Settled int64 `json:"settled"`
	// Committed is what the group has, as far as this member knows; a crash
	// repeats from there. It is negative when the group has nothing yet.
	Committed int64 `json:"committed"`
	// HighWatermark is the offset after the last message that is replicated;
	// negative until the first answer.
	HighWatermark int64 `json:"high_watermark"`
	// Lag is how many offsets there are from Settled to the last message that
	// can be read: not those of a transaction that is still open.
	Lag int64 `json:"lag"`
	// Advanced is when Settled last rose, or when there was last nothing to
	// do: now when Lag is zero. With a Lag above zero and Advanced long ago, the
	// partition stands still.
	Advanced time.Time `json:"advanced"`
	// Reason says why the partition cannot be read at the moment. It is empty
	// when it can.
	Reason string `json:"reason,omitempty"`
}

func (p *partition) health() PartitionHealth {
	p.state.Lock()
	end, high := p.end, p.high
	p.state.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	h := PartitionHealth{
		Topic: p.topic, Partition: p.stream.partition,
		Position: p.mark.end, Settled: p.mark.position(), Committed: p.committed,
		HighWatermark: high, Advanced: p.advanced,
	}
	if !p.begun {
		h.Position, h.Settled, h.Advanced = -1, -1, time.Time{}
		return h
	}
	h.Lag = max(0, end-h.Settled)
	if h.Lag == 0 {
		h.Advanced = time.Now()
	}
	return h
}
