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
	if rewrites(args) {
		return true
	}
	for len(sql) > 0 {
		var word string
		if word, sql = cutWord(sql); controls(word) {
			return true
		}
	}
	return false
}

// rewrites tells whether an argument may send other SQL.
func rewrites(args []any) bool {
	for _, arg := range args {
		switch arg.(type) {
		case pgx.NamedArgs, pgx.StrictNamedArgs:
		case pgx.QueryRewriter:
			return true
		}
	}
	return false
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

func controls(word string) bool {
	switch len(word) {
	case len("end"):
		return strings.EqualFold(word, "end")
	case len("abort"):
		return strings.EqualFold(word, "abort") || strings.EqualFold(word, "begin") // read only, which only warns otherwise
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

// endsTransaction tells whether sql begins with a statement that ends the
// transaction. What stands behind it is not looked at.
func endsTransaction(sql string) bool {
	var words [3]string
	for i := range words {
		words[i], sql = nextWord(sql)
	}
	is := func(i int, word string) bool { return strings.EqualFold(words[i], word) }
	switch {
	case is(0, "commit"), is(0, "end"), is(0, "abort"):
		return true
	case is(0, "prepare"):
		return is(1, "transaction")
	case is(0, "rollback"): // [work | transaction] to savepoint
		return !is(1, "to") && !is(2, "to")
	}
	return false
}

// reachesOthers tells whether sql may hold a statement that commits or undoes more
// than what its own message has done: one that ends the transaction, in another
// place than its beginning, or a rollback to a savepoint, which may be that of an
// earlier message. It errs on the side of caution.
func reachesOthers(sql string, args []any) bool {
	if rewrites(args) {
		return true
	}
	several := strings.Contains(strings.TrimRight(sql, "; \t\r\n"), ";")
	for len(sql) > 0 {
		var word string
		word, sql = cutWord(sql)
		switch {
		case strings.EqualFold(word, "commit"), strings.EqualFold(word, "prepare"), strings.EqualFold(word, "rollback"):
			return true
		case several && (strings.EqualFold(word, "end") || strings.EqualFold(word, "abort")):
			return true
		}
	}
	return false
}

// cutWord returns the letters at the beginning of sql, and what follows the byte
// behind them.
func cutWord(sql string) (word, rest string) {
	n := 0
	for n < len(sql) && isLetter(sql[n]) {
		n++
	}
	return sql[:n], sql[min(n+1, len(sql)):]
}

// nextWord returns the first word of sql behind white space, comments and
// semicolons, and what follows it.
func nextWord(sql string) (word, rest string) {
	for {
		sql = strings.TrimLeft(sql, "; \t\r\n\f\v")
		switch {
		case strings.HasPrefix(sql, "--"):
			n := strings.IndexAny(sql, "\r\n") // to the server, either ends the line
			if n < 0 {
				return "", ""
			}
			sql = sql[n:]
		case strings.HasPrefix(sql, "/*"):
			sql = afterComment(sql)
		default:
			n := 0
			for n < len(sql) && isLetter(sql[n]) {
				n++
			}
			return sql[:n], sql[n:]
		}
	}
}

// afterComment returns what follows the comment at the beginning of sql, which
// may hold others.
func afterComment(sql string) string {
	depth := 0
	for i := 0; i+1 < len(sql); i++ {
		switch sql[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return sql[i+1:]
			}
		}
	}
	return ""
}
