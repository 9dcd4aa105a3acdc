package main

import (
	"fmt"
	"strings"
)

// charted are the cases in the chart, and their colours.
var charted = []struct{ name, colour string }{
	{"hand", "#9aa0a6"}, {"watermill", "#9aa0a6"}, {"maxbatch-1", "#1a73e8"}, {"maxbatch-100", "#1a73e8"},
	{"group-ceiling", "#dadce0"}, {"queued", "#1a73e8"}, {"queued-ceiling", "#dadce0"}, {"batchhandler", "#1a73e8"}, {"broker", "#dadce0"},
}

// chart draws the medians with one worker as bars.
func (r *results) chart() string {
	const left, width, bar = 210, 480, 20
	var b strings.Builder
	y := 10
	for _, broker := range []string{"rabbitmq", "kafka"} {
		var rows []result
		most := 1.0
		for _, c := range charted {
			for _, res := range r.list() {
				if res.Broker == broker && res.Case == c.name && res.Workers == 1 {
					rows = append(rows, res)
					most = max(most, res.PerSecond.Median)
				}
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, `<text x="10" y="%d" font-weight="bold">%s, 1 worker, messages per second</text>`+"\n", y+14, broker)
		y += 26
		for _, res := range rows {
			n := int(res.PerSecond.Median / most * width)
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%d" height="%d" fill="%s"/><text x="%d" y="%d">%.0f</text>`+"\n",
				left-8, y+14, res.Case, left, y, max(n, 1), bar-4, colourOf(res.Case), left+n+6, y+14, res.PerSecond.Median)
			y += bar
		}
		y += 16
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="780" height="%d" font-family="sans-serif" font-size="13">`+"\n"+
		`<rect width="100%%" height="100%%" fill="white"/>`+"\n%s</svg>\n", y, b.String())
}

func colourOf(name string) string {
	for _, c := range charted {
		if c.name == name {
			return c.colour
		}
	}
	return "black"
}
