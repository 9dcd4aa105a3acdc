package rabbitmq

import (
	"context"
	"io"
	"net"
	"time"
)

// socket is the connection below the client, and below TLS. The client holds
// its locks while it writes and needs them to shut down, so that a peer which
// stops reading would block it for ever; a limit on each write prevents that.
type socket struct {
	net.Conn
	limit time.Duration
}

func (s *socket) Write(p []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(s.limit)); err != nil {
		return 0, err
	}
	return s.Conn.Write(p)
}

// closeWhenDone closes c when ctx ends, unless release is called before. It
// interrupts the calls of the client, none of which takes a context.
func closeWhenDone(ctx context.Context, c io.Closer) (release func()) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = c.Close() // an error would say that it is closed already
	})
	return func() {
		if !stop() {
			<-closed
		}
	}
}
