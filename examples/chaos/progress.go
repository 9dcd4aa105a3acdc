package main

import (
	"fmt"
	"time"
)

// showProgress prints a line each second, and a last one when the returned
// function is called.
func (d *drill) showProgress() (stop func()) {
	began := time.Now()
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				d.progress(time.Since(began))
			case <-quit:
				d.progress(time.Since(began))
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

func (d *drill) progress(elapsed time.Duration) {
	d.crew.mu.Lock()
	settled, deliveries := len(d.crew.tally.settled), d.crew.tally.deliveries
	published, killed, held := d.published, d.killed, d.held
	d.crew.mu.Unlock()
	fmt.Fprintf(d.out, "%5.1fs  processed %d of %d (%d published, %d deliveries)  killed %d of %d, %d between commit and acknowledgement  %.0f/s\n",
		elapsed.Seconds(), settled, d.messages, published, deliveries, killed, d.kills, held, float64(settled)/elapsed.Seconds())
}
