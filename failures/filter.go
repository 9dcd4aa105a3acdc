package failures

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ackafter/ackafter/consumer"
)

// Filter chooses messages among those that are set aside. A message must meet
// every field that is not zero; the zero Filter chooses all.
type Filter struct {
	// Subscriber is the one that set the message aside. Zero means any.
	Subscriber string

	// Reasons are those for which it was set aside, one of which it must have.
	// Nil means any. A slice that is empty and not nil chooses nothing, so that
	// a list which came out empty does not stand for everything.
	Reasons []consumer.Reason

	// IDs are those under which it is set aside, one of which it must have. Nil
	// means any. A slice that is empty and not nil chooses nothing. Without a
	// Subscriber, messages of all subscribers are looked through.
	IDs []string

	// FailedSince chooses what was set aside at that time or later, and
	// FailedBefore what was set aside earlier. Later attempts that failed do
	// not count here. Zero means any time.
	FailedSince, FailedBefore time.Time

	// ForGood chooses what no worker tries again by itself. Zero means that it
	// may be scheduled or not.
	ForGood bool

	// ErrorContains is part of the error of the last attempt, in the same
	// case. Zero means any error. All messages that meet the other fields are
	// looked through.
	ErrorContains string
}

// validate returns an error that holds every mistake, each naming its field.
func (f Filter) validate() error {
	var errs []error
	check := func(field, s string) {
		if !storable(s) {
			errs = append(errs, fmt.Errorf("failures.Filter.%s: %.100q is not valid UTF-8, or holds a NUL byte", field, s))
		}
	}
	check("Subscriber", f.Subscriber)
	check("ErrorContains", f.ErrorContains)
	for _, r := range f.Reasons {
		check("Reasons", string(r))
	}
	for _, id := range f.IDs {
		check("IDs", id)
	}
	return errors.Join(errs...)
}

// conditions is the SQL for f.
func (f Filter) conditions(q *query) (all []string) {
	and := func(condition string) { all = append(all, condition) }
	if f.Subscriber != "" {
		and("subscriber_id = " + q.arg(f.Subscriber, "text"))
	}
	switch {
	case len(f.Reasons) == 1: // lets an index give the order, too
		and("reason = " + q.arg(string(f.Reasons[0]), "text"))
	case f.Reasons != nil:
		reasons := make([]string, len(f.Reasons))
		for i, r := range f.Reasons {
			reasons[i] = string(r)
		}
		and("reason = any (" + q.arg(reasons, "text[]") + ")")
	}
	if f.IDs != nil {
		and("message_id = any (" + q.arg(slices.Clone(f.IDs), "text[]") + ")")
	}
	if !f.FailedSince.IsZero() {
		and("failed_at >= " + q.arg(f.FailedSince, "timestamptz"))
	}
	if !f.FailedBefore.IsZero() {
		and("failed_at < " + q.arg(f.FailedBefore, "timestamptz"))
	}
	if f.ForGood {
		and(forGood)
	}
	if f.ErrorContains != "" {
		and("strpos(error, " + q.arg(f.ErrorContains, "text") + ") > 0")
	}
	return all
}

// order is that of the oldest first. It is the order of an index, with a
// subscriber and without.
func (f Filter) order() string {
	if f.Subscriber != "" {
		return "\norder by failed_at, message_id"
	}
	return "\norder by failed_at, subscriber_id, message_id"
}

// after is the condition to stand behind p in that order.
func (f Filter) after(q *query, p place) string {
	at := q.arg(p.time(), "timestamptz")
	switch {
	case f.Subscriber == "":
		return fmt.Sprintf("(failed_at, subscriber_id, message_id) > (%s, %s, %s)",
			at, q.arg(p.Subscriber, "text"), q.arg(p.ID, "text"))
	case f.Subscriber == p.Subscriber:
		return fmt.Sprintf("(failed_at, message_id) > (%s, %s)", at, q.arg(p.ID, "text"))
	case f.Subscriber > p.Subscriber: // byte by byte, as the column is compared
		return "failed_at >= " + at
	}
	return "failed_at > " + at
}
