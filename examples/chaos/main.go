// Chaos kills workers while they book transfers, and then audits the ledger.
//
//	make services
//	go run ./examples/chaos -broker rabbitmq -messages 5000 -kills 20
//	go run ./examples/chaos -broker kafka
//	go run ./examples/chaos -inbox=off    # the same drill without an inbox
//	go run ./examples/chaos -demo         # both, one after the other
//
// A parent publishes transfer orders to a queue, some of them twice. Workers,
// processes of their own, book them in PostgreSQL. The parent kills workers
// with SIGKILL, every other time exactly between the commit and the
// acknowledgement, replaces them, and lets the rest finish. The last line is
// the audit:
//
//	audit: sent=5000 delivered=5310 duplicates=310 effects=5000 lost=0 doubled=0 balanced=yes
//
//	sent        orders, each counted once
//	delivered   messages that workers got from the broker; a worker reports
//	            each before it handles it, so that no kill hides one
//	duplicates  deliveries of an order that had been delivered before
//	effects     times that the two entries of an order were booked
//	lost        orders without entries
//	doubled     orders whose entries were booked more than once
//	balanced    whether the accounts sum up to zero, and each is the sum of its
//	            entries and of the orders as they were sent
//
// It exits with 0 when the audit is clean, with 1 when it is not, with 2 when
// the drill could not be carried out, and with 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const (
	exitClean       = 0
	exitFindings    = 1
	exitBroken      = 2
	exitInterrupted = 130
)

func main() {
	if isWorker() {
		os.Exit(workerMain())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := parentMain(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func parentMain(ctx context.Context, args []string, out, problems io.Writer) int {
	o, err := parseOptions(args, problems)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitClean
	case err != nil:
		fmt.Fprintln(problems, "chaos:", err)
		return exitBroken
	}
	run := drillOnce
	if o.demo {
		run = demo
	}
	code, err := run(ctx, o, out)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(problems, "chaos: interrupted; the workers, the queue and the schema are gone")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(problems, "chaos:", err)
		return exitBroken
	}
	return code
}

func drillOnce(ctx context.Context, o options, out io.Writer) (int, error) {
	r, err := runDrill(ctx, o, out)
	if err != nil {
		return exitBroken, err
	}
	fmt.Fprintln(out, r)
	if !r.clean() {
		return exitFindings, nil
	}
	return exitClean, nil
}
