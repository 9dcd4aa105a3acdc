// Package local lets the examples find the servers that `make services`
// starts, so that they run as they are. Your own worker has no use for it: put
// os.Getenv where an example says local.Getenv.
package local

import (
	"fmt"
	"os"

	"github.com/ackafter/ackafter/internal/servers"
)

// Getenv returns the named variable from the environment, else the address
// that `make services` has left for this checkout. Without either it says what
// to do, and ends the process.
func Getenv(name string) string {
	value, err := servers.Lookup(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}
