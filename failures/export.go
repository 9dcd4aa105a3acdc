package failures

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
)

// What Export reads at once: so many messages, or so many bytes of bodies and
// one body more.
const (
	exportMessages = 500
	exportBytes    = 4 << 20
)

// Export writes what f chooses to w, the oldest first: each message is a Message
// as JSON, on a line of its own. Key, body and headers are written as Data
// describes; a time that does not exist is left out.
//
// It reads a few messages at a time, with no transaction open while it writes, so
// that it needs little memory however many there are, and a slow w is in nobody's
// way. Hence it is no snapshot: what comes or goes meanwhile may be in it or not.
// An error leaves w with whole lines, unless it is w's own.
func (s *Store) Export(ctx context.Context, w io.Writer, f Filter) error {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	var after Cursor
	for {
		page, err := s.exportPage(ctx, f, after)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		for _, m := range page {
			if err := lines.Encode(m); err != nil {
				return fmt.Errorf("failures: write message %.100q: %w", m.ID, err)
			}
		}
		after = page[len(page)-1].place().cursor()
	}
}

func (s *Store) exportPage(ctx context.Context, f Filter, after Cursor) ([]*Message, error) {
	q, conditions, err := f.from(after)
	if err != nil {
		return nil, err
	}
	// The length of a body is known without reading it.
	q.sql = fmt.Sprintf(`select %[1]s
from (
	select *, sum(coalesce(octet_length(body), 0)) over (%[4]s
		rows between unbounded preceding and 1 preceding) as bytes_before
	from (
		select * from %[2]s%[3]s%[4]s
		limit %[5]d
	) as page
) as page
where bytes_before is null or bytes_before < %[6]d%[4]s`,
		messageColumns, s.failed, where(conditions), f.order(), exportMessages, exportBytes)
	return read(ctx, s, q, pgx.RowToFunc[*Message](scanMessage))
}
