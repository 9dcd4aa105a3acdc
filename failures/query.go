package failures

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// query is a statement and its arguments, which are text, text[] or timestamptz.
type query struct {
	sql  string
	args []any
}

// arg adds an argument, and returns what stands for it in the SQL.
func (q *query) arg(v any, typ string) string {
	q.args = append(q.args, v)
	return fmt.Sprintf("$%d::%s", len(q.args), typ)
}

// params is what pgx gets: a mode that prepares nothing, and the arguments.
func (q *query) params() []any {
	return append([]any{pgx.QueryExecModeExec}, q.args...)
}

// where joins conditions, of which there may be none.
func where(conditions []string) string {
	if len(conditions) == 0 {
		return ""
	}
	return "\nwhere " + strings.Join(conditions, "\n\tand ")
}

// message is the query of one message.
func (q *query) message(subscriber, id string) string {
	return where([]string{
		"subscriber_id = " + q.arg(subscriber, "text"),
		"message_id = " + q.arg(id, "text"),
	})
}
