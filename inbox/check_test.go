package inbox_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
	"github.com/ackafter/ackafter/inbox"
	"github.com/ackafter/ackafter/internal/pgtest"
)

var plan = consumer.Plan{
	Subscriber: subscriber, Transactions: 4, Workers: 1,
	HandlerTimeout: 30 * time.Second, DrainTimeout: 20 * time.Second,
	Warn: func(string) {},
}

func TestCheckAcceptsAndLeavesNoTrace(t *testing.T) {
	b := newBench(t, inbox.Config{})
	require.NoError(t, b.Check(b.ctx, plan))
	b.requireEffects(0)
	b.requireIdle()
}

// withSettings is an inbox whose connections have other settings.
func (b *bench) withSettings(cfg inbox.Config, settings ...string) *inbox.Inbox {
	b.t.Helper()
	pc := b.Pool.Config().Copy()
	for i := 0; i < len(settings); i += 2 {
		if settings[i] == "user" {
			pc.ConnConfig.User = settings[i+1]
			continue
		}
		pc.ConnConfig.RuntimeParams[settings[i]] = settings[i+1]
	}
	pool, err := pgxpool.NewWithConfig(b.ctx, pc)
	require.NoError(b.t, err)
	b.t.Cleanup(pool.Close)
	if cfg.Schema == "" {
		cfg.Schema = b.Schema
	}
	in, err := inbox.NewWithConfig(pool, cfg)
	require.NoError(b.t, err)
	return in
}

func TestCheckNamesCauseAndCure(t *testing.T) {
	b := newBench(t, inbox.Config{})
	nobody := "nobody_" + strings.ToLower(rand.Text()[:8])
	b.MustExec(t, "create role "+nobody+" login")
	t.Cleanup(func() { b.MustExec(t, "drop owned by "+nobody+"; drop role "+nobody) })
	reader := "reader_" + strings.ToLower(rand.Text()[:8])
	b.MustExec(t, "create role "+reader+" login")
	b.MustExec(t, "grant usage on schema %s to "+reader+"; grant select on all tables in schema %s to "+reader)
	t.Cleanup(func() { b.MustExec(t, "drop owned by "+reader+"; drop role "+reader) })

	for name, c := range map[string]struct {
		in   *inbox.Inbox
		want []string
	}{
		"not migrated":    {b.withSettings(inbox.Config{Schema: "absent_" + b.Schema}), []string{"migrations.Apply"}},
		"no rights":       {b.withSettings(inbox.Config{}, "user", nobody), []string{"grant"}},
		"may not write":   {b.withSettings(inbox.Config{}, "user", reader), []string{"grant select, insert"}},
		"async commit":    {b.withSettings(inbox.Config{}, "synchronous_commit", "off"), []string{"synchronous_commit", "AllowAsyncCommit"}},
		"read-only":       {b.withSettings(inbox.Config{}, "default_transaction_read_only", "on"), []string{"read-only", "primary"}},
		"impatient":       {b.withSettings(inbox.Config{}, "idle_in_transaction_session_timeout", "10s"), []string{"HandlerTimeout", "idle_in_transaction_session_timeout"}},
		"short statement": {b.withSettings(inbox.Config{}, "statement_timeout", "2s"), []string{"LockTimeout", "statement_timeout"}},
	} {
		err := c.in.Check(b.ctx, plan)
		require.Error(t, err, name)
		for _, want := range c.want {
			require.ErrorContains(t, err, want, name)
		}
		if name != "read-only" { // which may pass
			require.NotErrorIs(t, err, consumer.ErrOutage, name)
		}
	}
	require.NoError(t, b.withSettings(inbox.Config{AllowAsyncCommit: true}, "synchronous_commit", "off").Check(b.ctx, plan))

	greedy := plan
	greedy.Transactions = 100
	require.ErrorContains(t, b.Check(b.ctx, greedy), "pool_max_conns")

	var warned string
	crowded := plan
	crowded.Workers = 9
	crowded.Warn = func(problem string) { warned = problem }
	require.NoError(t, b.Check(b.ctx, crowded))
	require.Contains(t, warned, "4 of 9 workers")
}

// The rights that docs/postgresql.md gives to a worker are enough for all that it
// does.
func TestSetAsideWithTheRightsOfTheGuide(t *testing.T) {
	b := newBench(t, inbox.Config{})
	worker := "worker_" + strings.ToLower(rand.Text()[:8])
	b.MustExec(t, "create role "+worker+" login")
	t.Cleanup(func() { b.MustExec(t, "drop owned by "+worker+"; drop role "+worker) })
	guide, err := os.ReadFile("../docs/postgresql.md")
	require.NoError(t, err)
	grants := regexp.MustCompile(`(?m)^grant .* to worker;$`).FindAllString(string(guide), -1)
	require.Len(t, grants, 4)
	for _, grant := range grants {
		grant = strings.ReplaceAll(grant, "ackafter", b.Schema)
		b.MustExec(t, strings.Replace(grant, "to worker;", "to "+worker, 1))
	}
	in := b.withSettings(inbox.Config{}, "user", worker)
	require.NoError(t, in.Check(b.ctx, plan))
	m := message("m1", "x")
	m.Key = []byte("k")
	_, err = in.BeginAttempts(b.ctx, subscriber, []string{m.ID}, "r", false)
	require.NoError(t, err)
	require.NoError(t, in.EndAttempts(b.ctx, subscriber, []string{m.ID}))
	_, err = in.SetAside(b.ctx, subscriber, failure(m, 0))
	require.NoError(t, err)
	for _, result := range []error{errHandler, nil, nil} { // the last finds nothing, and sweeps
		_, err = in.RetryDue(b.ctx, subscriber, func(ctx context.Context, tx pgx.Tx, f consumer.Failure) error {
			_, err := in.Behind(ctx, tx, subscriber, f.Message)
			return errors.Join(err, result)
		}, again)
		require.ErrorIs(t, err, result)
	}
	b.requireAside(0)
}

func TestCheckRefusesANewerSchema(t *testing.T) {
	b := newBench(t, inbox.Config{})
	b.MustExec(t, "insert into %s.schema_version (version) values (9999)")
	require.ErrorContains(t, b.Check(b.ctx, plan), "upgrade")
}

func TestCheckWithNobodyThereIsAnOutage(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(context.Background(), "postgres://127.0.0.1:1/none?connect_timeout=2")
	require.NoError(t, err)
	defer pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.ErrorIs(t, inbox.New(pool).Check(ctx, plan), consumer.ErrOutage)
}

func TestWrongPasswordIsNoOutageAndNotShown(t *testing.T) {
	b := newBench(t, inbox.Config{})
	const secret = "s3cr3t%2F@x"
	pc := b.Pool.Config().Copy()
	pc.ConnConfig.User, pc.ConnConfig.Password = "absent", secret
	pool, err := pgxpool.NewWithConfig(b.ctx, pc)
	require.NoError(t, err)
	defer pool.Close()
	err = inbox.New(pool).Check(b.ctx, plan)
	require.Error(t, err)
	require.NotErrorIs(t, err, consumer.ErrOutage)
	require.ErrorContains(t, err, "absent")
	require.NotContains(t, err.Error(), secret)
}

func TestConfigMistakesAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := inbox.NewWithConfig(nil, inbox.Config{
		Isolation: "read uncomitted", LockTimeout: -1, ClaimTimeout: -2, CommitTimeout: -1, Schema: "a\x00b",
	})
	for _, field := range []string{"pool", "Isolation", "LockTimeout", "ClaimTimeout", "CommitTimeout", "Schema"} {
		require.ErrorContains(t, err, field)
	}
	require.ErrorContains(t, inbox.New(nil).Validate(), "pool")
	require.ErrorContains(t, new(inbox.Inbox).Validate(), "NewWithConfig")
}

func TestMaxTransactionsLeavesOneConnection(t *testing.T) {
	t.Parallel()
	for conns, want := range map[int32]int{1: 1, 2: 1, 8: 7} {
		cfg, err := pgxpool.ParseConfig("postgres://127.0.0.1:1/none")
		require.NoError(t, err)
		cfg.MaxConns = conns
		pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		require.Equal(t, want, inbox.New(pool).MaxTransactions())
	}
}

// Whatever way of executing statements a pool is set to, each must do.
func TestExecModes(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			exerciseMode(t, db, mode)
		})
	}
}

// exerciseMode goes through everything that an inbox sends.
func exerciseMode(t *testing.T, db *pgtest.DB, mode pgx.QueryExecMode) {
	b := benchOn(t, db, inbox.Config{})
	pc := b.Pool.Config().Copy()
	pc.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(b.ctx, pc)
	require.NoError(t, err)
	defer pool.Close()
	b.Inbox, err = inbox.NewWithConfig(pool, inbox.Config{Schema: b.Schema, LockTimeout: 50 * time.Millisecond})
	require.NoError(t, err)

	require.NoError(t, b.Check(b.ctx, plan))
	got, err := b.process(b.record, message("b", "x"), message("a", "y"), message("b", "x"))
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Processed, consumer.Processed, consumer.Duplicate), got)
	got, err = b.process(b.record, message("c", "x"), message("a", "z"), message("b", ""))
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Processed, consumer.Mismatch, consumer.Duplicate), got)
	_, err = b.process(b.do(sql("rollback", "begin")), message("d", "x"))
	require.ErrorIs(t, err, inbox.ErrTransactionEnded)
	_, err = b.process(b.do(func(context.Context, pgx.Tx) error { return errHandler }), message("d", "x"))
	require.ErrorIs(t, err, errHandler)

	release := make(chan struct{})
	rival := b.held(release, nil, message("e", "x"))
	_, err = b.process(b.record, message("e", "x"))
	require.ErrorIs(t, err, consumer.ErrContention)
	close(release)
	require.NoError(t, (<-rival).err)

	s := b.session()
	defer s.Close(b.ctx)
	next := message("g", "x")
	_, err = s.Process(b.ctx, []*consumer.Message{message("f", "x")}, b.record, then(next))
	require.NoError(t, err)
	got, err = s.Process(b.ctx, []*consumer.Message{next}, b.record, nil)
	require.NoError(t, err)
	require.Equal(t, verdicts(consumer.Processed), got)
	b.requireEffects(6)
}
