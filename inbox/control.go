package inbox

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// controlsTransaction tells whether sql may end the transaction, or change what
// the next one inherits of it. PostgreSQL has no other way to do either than a
// statement with one of these words, and a procedure called in a transaction has
// none at all. Whether it does is left to the server, so that a word in a literal
// or a name, or a CASE with its END, costs a few microseconds and no more.
func controlsTransaction(sql string, args []any) bool {
	for _, arg := range args {
		switch arg.(type) {
		case pgx.NamedArgs, pgx.StrictNamedArgs:
		case pgx.QueryRewriter: // sends what it likes
			return true
		}
	}
	for len(sql) > 0 {
		n := 0
		for n < len(sql) && isLetter(sql[n]) {
			n++
		}
		if controls(sql[:n]) {
			return true
		}
		sql = sql[min(n+1, len(sql)):]
	}
	return false
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

func controls(word string) bool {
	switch len(word) {
	case len("end"):
		return strings.EqualFold(word, "end")
	case len("abort"):
		return strings.EqualFold(word, "abort")
	case len("commit"):
		return strings.EqualFold(word, "commit")
	case len("prepare"):
		return strings.EqualFold(word, "prepare")
	case len("rollback"):
		return strings.EqualFold(word, "rollback")
	case len("transaction"): // and transaction_isolation and the like
		return strings.EqualFold(word, "transaction")
	}
	return false
}
