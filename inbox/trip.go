package inbox

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// trip is what goes to the server in one round trip. The server skips what
// follows a statement that fails.
//
// It speaks to pgconn, one floor below pgx.Batch: every message pays for it, and
// that spares each a tenth of its time.
type trip struct {
	steps []step
	// answered is how many steps the server has carried out, for sure.
	answered int
}

type step struct {
	sql        string
	params     [][]byte
	formats    []int16
	unprepared bool                  // it is planned anew each time
	row        func(values [][]byte) // valid until it returns; nil for a statement without rows
	tag        func(pgconn.CommandTag)
}

// inBinary is the format of all columns.
var inBinary = []int16{pgtype.BinaryFormatCode}

func newTrip() *trip { return &trip{steps: make([]step, 0, 4)} }

// add appends a statement, and returns it until the next add. The parameters are
// of the types string, []string, []byte and [][]byte.
func (t *trip) add(sql string, params ...any) *step {
	t.steps = append(t.steps, step{sql: sql, params: make([][]byte, len(params)), formats: make([]int16, len(params))})
	st := &t.steps[len(t.steps)-1]
	for i, p := range params {
		st.formats[i] = pgtype.BinaryFormatCode
		switch p := p.(type) {
		case string:
			st.params[i] = []byte(p) // text is the same in both formats
		case []byte:
			st.params[i] = p
		case []string:
			st.params[i] = encodeArray(pgtype.TextOID, p)
		case [][]byte:
			st.params[i] = encodeArray(pgtype.ByteaOID, p)
		default:
			panic(fmt.Sprintf("inbox: no way to send a %T", p))
		}
	}
	return st
}

// encodeArray returns a one-dimensional array in the binary format, in which an
// empty element of bytea is a null. pgtype would take two allocations for each
// element.
func encodeArray[E string | []byte](oid uint32, elements []E) []byte {
	size := 20
	for _, e := range elements {
		size += 4 + len(e)
	}
	b := make([]byte, 0, size)
	dimensions, nulls := uint32(1), uint32(0)
	if len(elements) == 0 {
		dimensions = 0
	}
	if oid == pgtype.ByteaOID {
		nulls = 1
	}
	b = binary.BigEndian.AppendUint32(b, dimensions)
	b = binary.BigEndian.AppendUint32(b, nulls)
	b = binary.BigEndian.AppendUint32(b, oid)
	if dimensions == 0 {
		return b
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(elements)))
	b = binary.BigEndian.AppendUint32(b, 1) // the first index
	for _, e := range elements {
		if oid == pgtype.ByteaOID && len(e) == 0 {
			b = binary.BigEndian.AppendUint32(b, math.MaxUint32)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(e)))
		b = append(b, e...)
	}
	return b
}

// send sends t, and reads the answers up to the first error.
func (s *session) send(ctx context.Context, t *trip) error {
	names, err := s.prepare(ctx, t)
	if err != nil {
		return err
	}
	p := s.pg().StartPipeline(ctx)
	for i, st := range t.steps {
		if names != nil && !st.unprepared {
			p.SendQueryPrepared(names[i], st.params, st.formats, inBinary)
		} else {
			p.SendQueryParams(st.sql, st.params, nil, st.formats, inBinary)
		}
	}
	if err = p.Sync(); err == nil {
		err = t.read(p)
	}
	if closed := p.Close(); err == nil {
		err = closed
	}
	return err
}

// prepare prepares each statement once per connection. It returns nil where
// that does not last: with PgBouncer, each transaction may get another one.
func (s *session) prepare(ctx context.Context, t *trip) ([]string, error) {
	if !s.in.prepares {
		return nil, nil
	}
	names := make([]string, len(t.steps))
	for i, st := range t.steps {
		if st.unprepared {
			continue
		}
		description, err := s.conn.Conn().Prepare(ctx, st.sql, st.sql)
		if err != nil {
			return nil, err
		}
		names[i] = description.Name
	}
	return names, nil
}

// prepares tells whether statements that are prepared on a connection stay there.
func prepares(cfg *pgx.ConnConfig) bool {
	return cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && cfg.StatementCacheCapacity > 0
}

func (t *trip) read(p *pgconn.Pipeline) error {
	for _, st := range t.steps {
		results, err := p.GetResults()
		if err != nil {
			return err
		}
		reader, ok := results.(*pgconn.ResultReader)
		if !ok {
			return fmt.Errorf("inbox: the server's reply is out of order: %T", results)
		}
		for reader.NextRow() {
			if st.row != nil {
				st.row(reader.Values())
			}
		}
		tag, err := reader.Close()
		if err != nil {
			return err
		}
		if st.tag != nil {
			st.tag(tag)
		}
		t.answered++
	}
	return nil
}
