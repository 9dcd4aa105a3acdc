package faultproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is for what happens at once; short is for what must not happen.
const (
	limit = 10 * time.Second
	short = 50 * time.Millisecond
)

// echo starts a server that sends back each line, and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

// client is a connection through a proxy.
type client struct {
	net.Conn
	t     *testing.T
	lines *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn, t, bufio.NewReader(conn)}
}

func (c *client) send(text string) {
	c.t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(c.t, err)
}

// receive returns the next line, or the error when none comes within d.
func (c *client) receive(d time.Duration) (string, error) {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(d)))
	return c.lines.ReadString('\n')
}

func (c *client) want(line string) {
	c.t.Helper()
	got, err := c.receive(limit)
	require.NoError(c.t, err)
	require.Equal(c.t, line, got)
}

// wantCut checks that the connection is gone, rather than silent.
func (c *client) wantCut() {
	c.t.Helper()
	got, err := c.receive(limit)
	require.Error(c.t, err, "got %q", got)
	require.False(c.t, errors.Is(err, os.ErrDeadlineExceeded), "silence instead of the end")
}

func TestForwards(t *testing.T) {
	t.Parallel()
	p, through := InFrontOf(t, "amqp://user:secret@"+echo(t)+"/vhost?heartbeat=1")
	require.Equal(t, "amqp://user:secret@"+p.Addr()+"/vhost?heartbeat=1", through)
	c := dial(t, p)
	c.send("one\ntwo\n")
	c.want("one\n")
	c.want("two\n")
}

func TestEndOfOneSideEndsTheOther(t *testing.T) {
	t.Parallel()
	p := Start(t, echo(t))
	c := dial(t, p)
	c.send("one\n")
	c.want("one\n")
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return p.Cut() == 0 }, limit, time.Millisecond)
}

func TestCutEndsEveryConnectionAndTakesNewOnes(t *testing.T) {
	t.Parallel()
	p := Start(t, echo(t))
	a, b := dial(t, p), dial(t, p)
	for _, c := range []*client{a, b} {
		c.send("one\n")
		c.want("one\n")
	}
	require.Equal(t, 2, p.Cut())
	a.wantCut()
	b.wantCut()
	again := dial(t, p)
	again.send("two\n")
	again.want("two\n")
}

func TestRefuseLeavesWhatIsThere(t *testing.T) {
	t.Parallel()
	p := Start(t, echo(t))
	old := dial(t, p)
	old.send("one\n")
	old.want("one\n")
	p.Refuse()
	requireRefused(t, p)
	old.send("two\n")
	old.want("two\n")
	p.Accept()
	again := dial(t, p)
	again.send("three\n")
	again.want("three\n")
}

func TestTargetThatIsAwayCutsTheClient(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := Start(t, listener.Addr().String())
	require.NoError(t, listener.Close())
	requireRefused(t, p)
}

func TestStallKeepsBytesAndConnections(t *testing.T) {
	t.Parallel()
	p := Start(t, echo(t))
	old := dial(t, p)
	old.send("one\n")
	old.want("one\n")
	p.Stall()
	p.Stall() // a second time changes nothing
	fresh := dial(t, p)
	for _, c := range []*client{old, fresh} {
		c.send("two\n")
		got, err := c.receive(short)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "got %q", got)
	}
	p.Resume()
	p.Resume()
	old.want("two\n")
	fresh.want("two\n")
}

func TestStalledConnectionCanBeCut(t *testing.T) {
	t.Parallel()
	p := Start(t, echo(t))
	c := dial(t, p)
	c.send("one\n")
	c.want("one\n")
	p.Stall()
	c.send("two\n")
	p.Cut()
	c.wantCut()
}

func TestCutBeforeSpringsOnceInOneDirection(t *testing.T) {
	t.Parallel()
	p := Start(t, echo(t))
	trap := p.CutBefore(Reply, "needle")
	c := dial(t, p)
	c.send("hay\n")
	c.want("hay\n")
	select {
	case <-trap.Sprung():
		t.Fatal("sprung by hay")
	default:
	}
	c.send("a needle in\n")
	c.wantCut()
	<-trap.Sprung()
	again := dial(t, p)
	again.send("a needle in\n")
	again.want("a needle in\n")
}

func TestCutBeforeRequestKeepsItFromTheServer(t *testing.T) {
	t.Parallel()
	p := Start(t, echo(t))
	trap := p.CutBefore(Request, "needle\n")
	c := dial(t, p)
	c.send("nee")
	require.Eventually(t, func() bool { return c.received(3) }, limit, time.Millisecond)
	c.send("dle\n")
	<-trap.Sprung()
	c.wantCut()
}

// requireRefused checks that p resets a new connection, perhaps before the
// client has noticed that it had one.
func requireRefused(t *testing.T, p *Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer conn.Close()
	(&client{conn, t, bufio.NewReader(conn)}).wantCut()
}

// received tells whether n bytes have come back.
func (c *client) received(n int) bool {
	_ = c.SetReadDeadline(time.Now().Add(short))
	got, _ := c.lines.Peek(n)
	return len(got) == n
}

func TestMatcherAcrossChunks(t *testing.T) {
	t.Parallel()
	m := &matcher{needle: []byte("COMMIT\x00")}
	for _, chunk := range []string{"", "C", "COM", "MI", "T"} {
		require.False(t, m.found([]byte(chunk)), "%q", chunk)
	}
	require.True(t, m.found([]byte("\x00Z")))
}
