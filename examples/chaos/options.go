package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
)

// options is what the command line says.
type options struct {
	broker     string
	messages   int
	kills      int
	workers    int
	maxBatch   int
	duplicates percent
	inbox      onOff
	seed       uint64
	demo       bool
}

func parseOptions(args []string, problems io.Writer) (options, error) {
	o := options{duplicates: 2, inbox: true}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.StringVar(&o.broker, "broker", "rabbitmq", "the broker: "+brokerNames())
	flags.IntVar(&o.messages, "messages", 5000, "how many transfer `orders` to send")
	flags.IntVar(&o.kills, "kills", 20, "how many workers to kill")
	flags.IntVar(&o.workers, "workers", 3, "how many worker `processes` to run at once")
	flags.IntVar(&o.maxBatch, "max-batch", 1, "how many orders a worker may book in one transaction; above 1 they queue their statements")
	flags.Var(&o.duplicates, "producer-duplicates", "how many orders the producer sends twice, in `percent`")
	flags.Var(&o.inbox, "inbox", "on or off: without an inbox, workers merely apply and commit")
	flags.Uint64Var(&o.seed, "seed", 0, "what the orders and the kills are drawn from; 0 means a new `seed`")
	flags.BoolVar(&o.demo, "demo", false, "run the drill without the inbox, and then with it")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000) + 1
	}
	return o, o.validate()
}

// ordersPerRound is the least that keeps the workers busy from one kill to the
// next.
const ordersPerRound = 50

func (o options) validate() error {
	_, err := brokerNamed(o.broker)
	errs := []error{err}
	if o.messages < 1 || o.kills < 0 || o.workers < 1 {
		errs = append(errs, errors.New("-messages and -workers must be at least 1, and -kills at least 0"))
	} else if o.messages/(o.kills+1) < ordersPerRound {
		errs = append(errs, fmt.Errorf("-kills %d needs at least -messages %d, so that there is something to interrupt",
			o.kills, (o.kills+1)*ordersPerRound))
	}
	if o.maxBatch < 1 || o.maxBatch > 1 && !bool(o.inbox) {
		errs = append(errs, errors.New("-max-batch must be at least 1, and is 1 with -inbox=off"))
	}
	if o.demo && !bool(o.inbox) {
		errs = append(errs, errors.New("-demo runs the drill both ways; leave -inbox out"))
	}
	return errors.Join(errs...)
}

// percent is a flag such as 2 or 2%.
type percent float64

func (p *percent) String() string { return strconv.FormatFloat(float64(*p), 'g', -1, 64) + "%" }

// Set parses the flag's value.
func (p *percent) Set(s string) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return errors.New("must be between 0% and 100%")
	}
	*p = percent(v)
	return nil
}

// onOff is a flag that is on or off.
type onOff bool

func (f *onOff) String() string {
	if *f {
		return "on"
	}
	return "off"
}

// Set parses the flag's value.
func (f *onOff) Set(s string) error {
	if s != "on" && s != "off" {
		return errors.New("must be on or off")
	}
	*f = s == "on"
	return nil
}
