// Bench compares this library with what people use instead, on real servers:
//
//	make bench
//	bin/services run -- bin/bench -brokers rabbitmq -cases hand,maxbatch-100 -rounds 3
//
// Each case runs in a process of its own, several times, in turn with the others.
// A figure counts only when the database is right afterwards. The results go to
// bench/results.json, docs/benchmarks.md and docs/benchmarks.svg.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// options is what the command line says.
type options struct {
	brokers, cases []string
	workers        []string
	rounds         int
	scale          float64
	messages       int
	accounts       string
	write          bool
	profile        string
}

// What -accounts may be.
const (
	accountsRandom = "random"
	accountsApart  = "apart"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if isChild() {
		err = childMain(ctx)
	} else {
		err = parentMain(ctx, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseOptions(args []string) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	brokers := flags.String("brokers", "rabbitmq,kafka", "which brokers")
	workers := flags.String("workers", "1,4", "how many workers")
	only := flags.String("cases", "", "which cases; empty means all of them: "+strings.Join(caseNames(), ", "))
	skip := flags.String("skip", "", "which cases not")
	var o options
	flags.IntVar(&o.rounds, "rounds", 5, "how often each case runs")
	flags.Float64Var(&o.scale, "scale", 1, "how many times the usual number of messages")
	flags.IntVar(&o.messages, "messages", 0, "messages of each backlog; zero means what suits the case")
	flags.StringVar(&o.accounts, "accounts", accountsRandom, "which accounts messages change: "+accountsRandom+", or "+accountsApart+", where no two transactions meet")
	flags.BoolVar(&o.write, "write", false, "write bench/results.json and docs/benchmarks.*")
	flags.StringVar(&o.profile, "cpuprofile", "", "write a profile of the last child to this file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.brokers, o.workers, o.cases = list(*brokers), list(*workers), list(*only)
	if len(o.cases) == 0 {
		o.cases = caseNames()
	}
	if o.accounts != accountsRandom && o.accounts != accountsApart {
		return o, fmt.Errorf("-accounts is %s or %s, not %q", accountsRandom, accountsApart, o.accounts)
	}
	skipped := list(*skip)
	for _, name := range slices.Concat(o.cases, skipped) {
		if !slices.Contains(caseNames(), name) {
			return o, fmt.Errorf("there is no case %q; there are %s", name, strings.Join(caseNames(), ", "))
		}
	}
	o.cases = slices.DeleteFunc(o.cases, func(name string) bool { return slices.Contains(skipped, name) })
	return o, nil
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

func parentMain(ctx context.Context, args []string) (err error) {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	db, err := openDatabase(ctx)
	if err != nil {
		return err
	}
	defer db.close()
	defer func() { err = errors.Join(err, cleanup(ctx, db.dropOldRows)) }()
	results := &results{}
	for round := range o.rounds {
		for _, brokerName := range o.brokers {
			b, err := openBroker(brokerName)
			if err != nil {
				return err
			}
			for _, c := range selected(o, brokerName) {
				m, err := measure(ctx, db, b, c, o)
				if err != nil {
					return fmt.Errorf("round %d, %s: %w", round+1, c, err)
				}
				results.add(c, m)
				fmt.Printf("round %d  %-34s %s\n", round+1, c, m)
			}
		}
	}
	fmt.Println()
	fmt.Print(results.text())
	if !o.write {
		return nil
	}
	return results.write(ctx, db, o)
}
