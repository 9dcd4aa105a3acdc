//go:build unix

package servers

import (
	"net"
	"testing"
)

func TestReservePort(t *testing.T) {
	t.Parallel()
	first, err := reservePort(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := first.release(); err != nil {
			t.Error(err)
		}
	})
	if first.number < firstPort || first.number > lastPort {
		t.Errorf("port = %d, want one between %d and %d", first.number, firstPort, lastPort)
	}
	if _, err := tryPort(first.number); err == nil {
		t.Error("the port was reserved twice")
	}
	second, err := reservePort(first.number)
	if err != nil {
		t.Fatal(err)
	}
	if second.number == first.number {
		t.Error("a preferred port was reserved twice")
	}
	if err := second.release(); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", loopback(second.number))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if _, err := tryPort(second.number); err == nil {
		t.Error("a port was reserved on which somebody listens")
	}
}
