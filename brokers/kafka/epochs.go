package kafka

// epochs tells under which leader the offsets of a log were written. What a
// commit says of that lets the next owner notice that the log was cut off and
// written anew: the broker compares.
type epochs []span

// span is offsets without a gap, first to last, of one leader's epoch.
type span struct {
	first, last int64
	epoch       int32
}

// add notes a batch. Where compaction has left a gap, nothing is known of it.
func (e epochs) add(b *batch) epochs {
	if b.broken != nil {
		return e
	}
	if n := len(e); n > 0 && e[n-1].epoch == b.epoch && e[n-1].last+1 >= b.base {
		e[n-1].last = max(e[n-1].last, b.last)
		return e
	}
	return append(e, span{b.base, b.last, b.epoch})
}

// from forgets what is only below an offset.
func (e epochs) from(offset int64) epochs {
	for len(e) > 0 && e[0].last < offset {
		e = e[1:]
	}
	return e
}

// of returns the epoch of an offset, or -1 when it is not known.
func (e epochs) of(offset int64) int32 {
	for _, s := range e {
		if s.first <= offset && offset <= s.last {
			return s.epoch
		}
	}
	return -1
}
