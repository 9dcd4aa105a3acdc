//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/internal/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeService is a service without a server.
type fakeService struct {
	started *int
	pingErr error
	// startErr, when set, makes an optional service of it, which cannot start.
	startErr error
}

type fakeInstance struct{}

func (fakeInstance) URL() string  { return "fake://private" }
func (fakeInstance) Close() error { return nil }

func (fakeService) name() string                             { return "fake" }
func (fakeService) variable() string                         { return "ACKAFTER_TEST_FAKE_URL" }
func (fakeService) programs() []string                       { return nil }
func (fakeService) containerPort() string                    { return "1234" }
func (fakeService) containerURL(hostPort string) string      { return "fake://" + hostPort }
func (f fakeService) optional() bool                         { return f.startErr != nil }
func (f fakeService) ping(_ context.Context, _ string) error { return f.pingErr }

func (f fakeService) startNative(context.Context, string, bool) (instance, error) {
	*f.started++
	return fakeInstance{}, f.startErr
}

// newProvider returns a provider for a fake service in an empty checkout, and
// the count of its starts. Only what docker says is found in PATH.
func newProvider(t *testing.T, docker string, pingErr error) (*provider, *int) {
	t.Helper()
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "docker"), []byte("#!/bin/sh\n"+docker), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	started := new(int)
	return &provider{root: t.TempDir(), services: []service{fakeService{started: started, pingErr: pingErr}}, progress: io.Discard}, started
}

const noDocker = "exit 1\n"

func TestProvideTakesTheEnvironment(t *testing.T) {
	t.Setenv("ACKAFTER_TEST_FAKE_URL", "fake://environment")
	p, started := newProvider(t, noDocker, nil)
	found, err := p.provide(t.Context(), p.state("up"), false)
	if err != nil || len(found) != 1 || found[0].url != "fake://environment" || *started != 0 {
		t.Errorf("found %v, %v, %d starts; want the address of the environment", found, err, *started)
	}

	p, _ = newProvider(t, noDocker, errors.New("refused"))
	_, err = p.provide(t.Context(), p.state("up"), false)
	if err == nil || !strings.Contains(err.Error(), "unset ACKAFTER_TEST_FAKE_URL: refused") {
		t.Errorf("error = %v, want the cause and the cure", err)
	}
}

func TestProvideStartsAPrivateServer(t *testing.T) {
	p, started := newProvider(t, noDocker, nil)
	found, err := p.provide(t.Context(), p.state("up"), false)
	if err != nil || len(found) != 1 || found[0].url != "fake://private" || *started != 1 {
		t.Errorf("found %v, %v, %d starts; want one private server", found, err, *started)
	}
}

func TestProvideUsesDocker(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, started := newProvider(t, `echo "$*" >>'`+log+`'
case "$*" in *" port fake 1234") echo 127.0.0.1:4321 ;; esac
`, nil)
	if err := p.up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if env := readFile(t, filepath.Join(p.root, servers.EnvFile)); env != "ACKAFTER_TEST_FAKE_URL=fake://127.0.0.1:4321\n" || *started != 0 {
		t.Errorf("env = %q with %d private servers, want the container's address", env, *started)
	}
	if err := p.up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if count := strings.Count(readFile(t, log), " up --detach --wait fake\n"); count != 1 {
		t.Errorf("the container was started %d times by two calls, want once", count)
	}
	if err := p.down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if commands := readFile(t, log); !strings.HasSuffix(commands, " down --volumes\n") {
		t.Errorf("the commands of docker are:\n%s\nwant down at the end", commands)
	}
	if _, err := os.Stat(p.state("up")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after down: %v, want that nothing is left", err)
	}
}

func TestProvideFallsBackFromDocker(t *testing.T) {
	p, started := newProvider(t, `case "$*" in *" up "*) echo "no image" >&2; exit 1 ;; esac`, nil)
	var progress strings.Builder
	p.progress = &progress
	found, err := p.provide(t.Context(), p.state("up"), false)
	if err != nil || len(found) != 1 || *started != 1 {
		t.Errorf("found %v, %v, %d starts; want a private server", found, err, *started)
	}
	if !strings.Contains(progress.String(), "no image") {
		t.Errorf("progress = %q, want why Docker did not work", progress.String())
	}
}

func TestProvideGoesOnWithoutAnOptionalServer(t *testing.T) {
	p, started := newProvider(t, noDocker, nil)
	p.services = []service{fakeService{started: started, startErr: errors.New("no\nJava")}}
	var progress strings.Builder
	p.progress = &progress
	t.Setenv("CI", "")
	found, err := p.provide(t.Context(), p.state("up"), false)
	if err != nil || len(found) != 0 {
		t.Errorf("found %v, %v; want nothing, and no error", found, err)
	}
	if env := p.environment(found); len(env) != 1 || !strings.HasPrefix(env[0], "ACKAFTER_TEST_FAKE_URL_MISSING=no Java") {
		t.Errorf("environment = %q, want the reason on one line", env)
	}
	if !strings.Contains(progress.String(), "NOT tested") {
		t.Errorf("progress = %q, want it said plainly", progress.String())
	}
	t.Setenv("CI", "true")
	if _, err := p.provide(t.Context(), p.state("up"), false); err == nil {
		t.Error("with CI=true: no error, want one")
	}
}

func TestRemoveStaleRuns(t *testing.T) {
	p, _ := newProvider(t, noDocker, nil)
	alive, free, err := servers.TryLock(p.state("run-1.lock"))
	if err != nil || !free {
		t.Fatal(free, err)
	}
	t.Cleanup(func() {
		if err := alive.Unlock(); err != nil {
			t.Error(err)
		}
	})
	for _, set := range []string{"run-1", "run-2"} {
		if err := os.MkdirAll(filepath.Join(p.state(set), "fake"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(p.state("run-2.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.removeStaleRuns(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(p.state("*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v; want only the living run", left, err)
	}
}

func TestExecuteReturnsTheCode(t *testing.T) {
	for script, want := range map[string]int{
		`test "$ACKAFTER_TEST_FAKE_URL" = fake://x`: 0,
		"exit 7":          7,
		"kill -s TERM $$": 128 + int(syscall.SIGTERM),
	} {
		signals := newRelay()
		code, err := execute(signals, []string{"/bin/sh", "-c", script}, []string{"ACKAFTER_TEST_FAKE_URL=fake://x"})
		signals.close()
		if err != nil || code != want {
			t.Errorf("%s: code %d, %v; want %d", script, code, err, want)
		}
	}
}

func TestExecutePassesSignals(t *testing.T) {
	signals := newRelay()
	defer signals.close()
	ready := filepath.Join(t.TempDir(), "ready")
	if err := syscall.Mkfifo(ready, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		// The read returns when the script has written.
		if _, err := os.ReadFile(ready); err != nil {
			t.Error(err)
		}
		signals.incoming <- syscall.SIGTERM
	}()
	start := time.Now()
	script := `trap "exit 9" TERM; : >'` + ready + `'; sleep 60 & wait`
	code, err := execute(signals, []string{"/bin/sh", "-c", script}, nil)
	if err != nil || code != 9 {
		t.Errorf("code %d, %v; want that of the trap, 9", code, err)
	}
	if elapsed := time.Since(start); elapsed > graceLimit/2 {
		t.Errorf("it took %v, want that the signal ends it", elapsed)
	}
}

func TestPackageList(t *testing.T) {
	t.Parallel()
	if got := packageList("a,b c,"); len(got) != 3 {
		t.Errorf("packages = %v, want 3", got)
	}
	p := &provider{packages: []string{"sh"}, progress: io.Discard}
	if _, err := p.install(t.Context(), nil); err != nil {
		t.Errorf("install of what is there: %v", err)
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for n, args := range [][]string{{"no-such-command"}, {"run", "--"}} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			if code, err := dispatch(nil, args); code != 2 || err == nil {
				t.Errorf("%v: code %d, %v; want 2 and an error", args, code, err)
			}
		})
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
