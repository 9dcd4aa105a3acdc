package main

import (
	"bufio"
	"io"
	"os"
	"strings"
	"sync"
)

// The lines between a worker and its parent: a word, and perhaps ids.
const (
	lineServing   = "serving"   // a new stream
	lineEnded     = "ended"     // a stream has; the ids were delivered and not settled
	lineDelivered = "delivered" // by the broker, and not handled yet
	lineSettled   = "settled"   // committed, and about to be acknowledged
	lineHeld      = "held"      // committed, and not acknowledged
	lineArm       = "arm"       // from the parent: hold from now on
)

// parentPipe is a worker's connection to its parent. What was written to a
// pipe outlives its writer, so that a kill takes no report back.
type parentPipe struct {
	mu  sync.Mutex
	out io.Writer
}

// report writes one line. When the parent is gone the worker has no purpose.
func (p *parentPipe) report(word string, ids ...string) {
	line := word + " " + strings.Join(ids, " ") + "\n"
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := io.WriteString(p.out, line); err != nil {
		os.Exit(exitOrphaned)
	}
}

// obey reads the parent's lines. The end of them is the end of the parent,
// even if that was killed, and of the worker.
func obey(in io.Reader, arm func()) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == lineArm {
			arm()
		}
	}
	os.Exit(exitOrphaned)
}
