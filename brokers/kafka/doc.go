// Package kafka is a consumer.Source that reads topics of Kafka as a member of
// a consumer group, through kafka-go.
//
// The group divides the partitions among its members, for one generation at a
// time. Each partition of a generation is a stream. It belongs to this member
// until the generation ends, and its offsets are committed only through that
// generation: the group refuses the commit of one that has ended, so a member
// that comes too late cannot undo what its successor has committed.
//
//	joining ──► generation: for each partition fetch ∥ serve; one committer
//	   ▲                              │ the group rebalances, a member is thrown
//	   └── the last commit ◄── drain ◄┘ out, new partitions, Run's context ends
//
// What is settled may be settled in any order, so each stream has a watermark:
// the first offset that was delivered and is not settled. Only that is
// committed, in intervals and at the end, and it only rises. What was settled
// beyond it is delivered again after a crash, and the inbox knows it.
//
// A topic is known by its id. One that is deleted and made again is another: its
// messages are never taken for those of the one before, nor are its offsets. The
// metadata of a committed offset holds the id, see offsets.go.
//
// Messages are fetched by requests of this package, which go through
// kafka-go's Transport, rather than by its Reader. The Reader commits under
// whatever generation there is, delivers what was aborted, and cannot be
// closed while it waits.
//
// Three goroutines belong to a stream at most: one fetches, one serves, and one
// for the generation commits. Run waits for all of them, and for those of
// kafka-go. What bounds every wait is a field of Config.
package kafka
