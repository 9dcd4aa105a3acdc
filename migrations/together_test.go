package migrations

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// childSchema makes the test binary a worker that only calls Apply.
const childSchema = "ACKAFTER_TEST_APPLY_SCHEMA"

func TestTenAtOnce(t *testing.T) {
	t.Parallel()
	applyTenAtOnce(t, newSchema(t, "ten_"), func(*pgxpool.Config) {})
}

// Under repeatable read, one who waited would not see what the one before has done.
func TestTenAtOnceWhateverTheDefaultIsolation(t *testing.T) {
	t.Parallel()
	applyTenAtOnce(t, newSchema(t, "isolation_"), parameter("default_transaction_isolation", "repeatable read"))
}

// applyTenAtOnce gives each of ten workers a pool of its own, as ten processes have.
func applyTenAtOnce(t *testing.T, schema string, configure func(*pgxpool.Config)) {
	t.Helper()
	const workers = 10
	var pools []*pgxpool.Pool
	for range workers {
		pool := connect(t, configure)
		require.NoError(t, pool.Ping(testContext(t))) // connected, so that all really begin together
		pools = append(pools, pool)
	}
	start, errs := make(chan struct{}), make([]error, workers)
	var group sync.WaitGroup
	for i, pool := range pools {
		group.Go(func() {
			<-start
			errs[i] = Apply(testContext(t), pool, Config{Schema: schema})
		})
	}
	close(start)
	group.Wait()

	for _, err := range errs {
		require.NoError(t, err)
	}
	requireVersion(t, pools[0], schema, Version)
}

func TestProcessesAtOnce(t *testing.T) {
	t.Parallel()
	schema := newSchema(t, "processes_")
	program, err := os.Executable()
	require.NoError(t, err)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			child := exec.CommandContext(testContext(t), program)
			child.Env = append(os.Environ(), childSchema+"="+schema, "DATABASE_URL="+databaseURL(t))
			output, err := child.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
	group.Wait()
	requireVersion(t, connect(t), schema, Version)
}

func applyAsChild() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err == nil {
		defer pool.Close()
		err = Apply(ctx, pool, Config{Schema: os.Getenv(childSchema)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
