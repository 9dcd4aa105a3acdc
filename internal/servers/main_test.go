//go:build unix

package servers

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// helperDirectory makes the test binary start a server in the directory which
// it names, print its address and wait. Tests kill such a helper to see what a
// crash of the process that owns a server leaves behind.
const helperDirectory = "ACKAFTER_TEST_HELPER_DIRECTORY"

// helperDetached makes the helper start a detached server, and end.
const helperDetached = "ACKAFTER_TEST_HELPER_DETACHED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDirectory); dir != "" {
		os.Exit(helper(dir, os.Getenv(helperDetached) != ""))
	}
	goleak.VerifyTestMain(m)
}

func helper(dir string, detached bool) int {
	server, err := StartPostgreSQL(context.Background(), dir, PostgreSQLConfig{Detached: detached})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(server.URL())
	if !detached {
		select {} // until the test kills us
	}
	return 0
}

// needServers skips a test in -short mode.
func needServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers")
	}
}

// testContext bounds a test, so that a server which hangs fails it.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// closeAtEnd closes a server after the test and reports its error.
func closeAtEnd(t *testing.T, server interface{ Close() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}
