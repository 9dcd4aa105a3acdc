// Package testmain lets the tests of a package that need servers fail with one
// sentence where there are none.
package testmain

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/ackafter/ackafter/internal/servers"
)

// Need ends the process, saying what to do, unless the named servers' addresses
// are known: DATABASE_URL, AMQP_URL, KAFKA_BROKERS. It goes into TestMain. With
// -short it does nothing, since those tests are left out then, and as little for
// a server of which "make test" has found that this machine cannot have it.
func Need(names ...string) {
	flag.Parse()
	if testing.Short() {
		return
	}
	for _, name := range names {
		if _, err := servers.Lookup(name); err != nil && servers.Missing(name) == "" {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}
