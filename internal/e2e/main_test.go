package e2e

import (
	"flag"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ackafter/ackafter/internal/testmain"
)

// limit is how long anything that must happen may take on a busy machine.
const limit = time.Minute

// tick is how often a condition is looked at.
const tick = 10 * time.Millisecond

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(childMain())
	}
	testmain.Need("DATABASE_URL", "AMQP_URL", "KAFKA_BROKERS")
	waitTogether()
	goleak.VerifyTestMain(m)
}

// waitTogether lets more tests run at once than there are processors: most of
// the time they wait, one of them for 20 s. -parallel still decides when it is
// given.
func waitTogether() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", "8") // an error would mean that the flag is gone
	}
}
