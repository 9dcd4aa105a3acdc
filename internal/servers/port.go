//go:build unix

package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Ports are chosen below the ranges from which Linux (32768 up) and macOS
// (49152 up) take the local ports of outgoing connections. Otherwise a client
// that reconnects while its server is stopped could take the server's port, or
// even connect to itself.
const (
	firstPort = 20000
	lastPort  = 29999
)

// port is a port of the loopback interface, reserved against all processes
// that use this package: also while its server is stopped, since a server
// keeps its port over a restart.
type port struct {
	number int
	lock   *FileLock
}

// reservePort reserves the preferred port, or any free one when that is taken
// or 0.
func reservePort(preferred int) (*port, error) {
	if preferred != 0 {
		if p, err := tryPort(preferred); err == nil {
			return p, nil
		}
	}
	const attempts = 1000
	var err error
	for range attempts {
		var p *port
		if p, err = tryPort(firstPort + rand.IntN(lastPort-firstPort+1)); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("find a free port between %d and %d: %w", firstPort, lastPort, err)
}

func tryPort(number int) (*port, error) {
	name := "ackafter-ports-" + strconv.Itoa(os.Geteuid())
	lock, err := tryLock(filepath.Join(os.TempDir(), name, strconv.Itoa(number)))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", loopback(number))
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	if err := listener.Close(); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return &port{number: number, lock: lock}, nil
}

func (p *port) release() error { return p.lock.Unlock() }

func loopback(number int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(number)) }
