package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	random "math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/internal/servers"
)

// drill is one run: a queue, a ledger, the workers between them, and what is
// done to them.
type drill struct {
	options
	random *random.Rand
	out    io.Writer
	pool   *pgxpool.Pool
	ledger ledger
	queue  queue
	crew   *crew

	published int // messages, with those sent twice
	killed    int
	held      int // of these: between commit and acknowledgement
}

// cleanUpLimit bounds the end of a drill, also after Ctrl-C.
const cleanUpLimit = 20 * time.Second

// killLimit is for a broker that notices only after a while that a worker is
// dead.
const killLimit = 10 * time.Second

// runDrill carries out a drill and audits it. An error means that it could not
// be carried out. Whatever happens, nothing of it is left behind, except after
// a SIGKILL: then the workers end by themselves, but queue and schema stay.
func runDrill(ctx context.Context, o options, out io.Writer) (_ report, err error) {
	limit := time.Minute + time.Duration(o.messages)*5*time.Millisecond + time.Duration(o.kills)*killLimit
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the drill is not over after %v", limit))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	d := &drill{options: o, random: random.New(random.NewPCG(o.seed, 0)), out: out}
	defer func() {
		if ctx.Err() != nil && err != nil {
			err = context.Cause(ctx) // what everything else follows from
		}
		cleanUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
		defer cancel()
		err = errors.Join(err, d.cleanUp(cleanUp))
	}()
	if err := d.setUp(ctx, fail); err != nil {
		return report{}, err
	}
	sent := newOrders(o.messages, d.random)
	stop := d.showProgress()
	err = d.run(ctx, sent)
	stop()
	if err != nil {
		return report{}, err
	}
	return d.audit(ctx, sent)
}

// setUp makes the ledger, the queue, and the workers.
func (d *drill) setUp(ctx context.Context, fail func(error)) error {
	b, err := brokerNamed(d.broker)
	if err != nil {
		return err
	}
	databaseURL, databaseErr := servers.DatabaseURL()
	brokerURL, brokerErr := servers.Lookup(b.variable())
	if err := errors.Join(databaseErr, brokerErr); err != nil {
		return err
	}
	name := "chaos_" + strings.ToLower(rand.Text()[:12])
	if d.pool, err = openPool(ctx, databaseURL, 2); err != nil {
		return err
	}
	d.ledger = ledger{name}
	if err := d.ledger.create(ctx, d.pool); err != nil {
		return err
	}
	if d.queue, err = b.open(ctx, brokerURL, name); err != nil {
		return err
	}
	command, err := workerCommand(workerConfig{
		Broker: d.broker, BrokerURL: brokerURL, Queue: name,
		DatabaseURL: databaseURL, Schema: name, Inbox: bool(d.inbox), MaxBatch: d.maxBatch,
	})
	if err != nil {
		return err
	}
	d.crew = newCrew(command, fail)
	fmt.Fprintf(d.out, "%d orders over %s, %d workers, %d kills, inbox %s, -seed %d; queue and schema %s\n",
		d.messages, d.broker, d.workers, d.kills, d.inbox.String(), d.seed, name)
	return d.crew.hire(d.workers)
}

// workerCommand makes commands that run this program as a worker.
func workerCommand(c workerConfig) (func() *exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return func() *exec.Cmd {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), workerVariable+"="+string(config))
		cmd.Stderr = os.Stderr
		return cmd
	}, nil
}

// cleanUp leaves nothing behind: first the workers, which use the rest.
func (d *drill) cleanUp(ctx context.Context) error {
	var errs []error
	if d.crew != nil {
		errs = append(errs, d.crew.killAll(ctx))
	}
	if d.queue != nil {
		errs = append(errs, d.queue.delete(ctx))
	}
	if d.pool != nil {
		errs = append(errs, d.ledger.drop(ctx, d.pool))
		d.pool.Close()
	}
	return errors.Join(errs...)
}

func (d *drill) audit(ctx context.Context, sent []order) (report, error) {
	books, err := d.ledger.read(ctx, d.pool)
	if err != nil {
		return report{}, err
	}
	t := d.crew.tally // all workers have ended
	r := report{
		sent:       len(sent),
		delivered:  t.deliveries,
		duplicates: t.deliveries - len(t.delivered),
		findings:   books.audit(sent),
	}
	for i, problem := range r.problems {
		if i == 3 {
			fmt.Fprintf(d.out, "… and %d more\n", len(r.problems)-i)
			break
		}
		fmt.Fprintln(d.out, problem)
	}
	return r, nil
}
