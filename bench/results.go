package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// spread is what several measurements of one thing say.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(ms []measurement, value func(measurement) float64) spread {
	var vs []float64
	for _, m := range ms {
		vs = append(vs, value(m))
	}
	slices.Sort(vs)
	n := len(vs)
	return spread{(vs[(n-1)/2] + vs[n/2]) / 2, vs[0], vs[n-1]}
}

// result is one case in bench/results.json.
type result struct {
	Broker    string  `json:"broker"`
	Case      string  `json:"case"`
	Workers   int     `json:"workers"`
	Rounds    int     `json:"rounds"`
	PerSecond spread  `json:"msgs_per_s"`
	P50       float64 `json:"p50_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
	Allocs    float64 `json:"allocs_per_message"`
	Bytes     float64 `json:"bytes_per_message"`
	PeakRSS   int64   `json:"peak_rss_bytes"`
}

// results gathers measurements, in the order of their first round.
type results struct {
	order []benchCase
	by    map[string][]measurement
}

func (r *results) add(c benchCase, m measurement) {
	if r.by == nil {
		r.by = map[string][]measurement{}
	}
	if _, known := r.by[c.String()]; !known {
		r.order = append(r.order, c)
	}
	r.by[c.String()] = append(r.by[c.String()], m)
}

func (r *results) list() []result {
	var all []result
	for _, c := range r.order {
		ms := r.by[c.String()]
		median := func(value func(measurement) float64) float64 { return spreadOf(ms, value).Median }
		res := result{
			Broker: c.Broker, Case: c.Name, Workers: c.Workers, Rounds: len(ms),
			PerSecond: spreadOf(ms, func(m measurement) float64 { return m.PerSecond }),
			Allocs:    median(func(m measurement) float64 { return m.Allocs }),
			Bytes:     median(func(m measurement) float64 { return m.Bytes }),
			PeakRSS:   int64(median(func(m measurement) float64 { return float64(m.PeakMemory) })),
		}
		if c.Rate > 0 {
			res.P50 = median(func(m measurement) float64 { return m.P50 })
			res.P99 = median(func(m measurement) float64 { return m.P99 })
		}
		all = append(all, res)
	}
	return all
}

// ratio compares two cases, by the median of what their rounds say.
type ratio struct {
	what, base string
	least      float64 // what the project wants
}

var ratios = []ratio{
	{"maxbatch-1", "hand", 1.2}, {"maxbatch-1", "watermill", 0},
	{"maxbatch-100", "watermill", 4.2}, {"queued", "watermill", 12}, {"batchhandler", "watermill", 12},
	{"maxbatch-100", "group-ceiling", 0.9}, {"queued", "queued-ceiling", 0.9}, {"batchhandler", "queued-ceiling", 0.9},
	{"duplicates-only", "maxbatch-100", 3}, {"duplicates-10", "maxbatch-100", 0.9},
	{"failing-1", "maxbatch-100", 0.5}, {"old-rows-10m", "maxbatch-100", 0.6},
}

// of returns the ratio round by round, since a machine is not as fast in each.
func (r *results) of(broker string, workers int, q ratio) (spread, bool) {
	key := func(name string) string { return benchCase{Broker: broker, Name: name, Workers: workers}.String() }
	what, base := r.by[key(q.what)], r.by[key(q.base)]
	var vs []measurement
	for i := range min(len(what), len(base)) {
		vs = append(vs, measurement{PerSecond: what[i].PerSecond / base[i].PerSecond})
	}
	if len(vs) == 0 {
		return spread{}, false
	}
	return spreadOf(vs, func(m measurement) float64 { return m.PerSecond }), true
}

func (r *results) text() string {
	var b strings.Builder
	for _, res := range r.list() {
		fmt.Fprintf(&b, "%-10s %-16s %d  %8.0f msg/s (%.0f to %.0f)", res.Broker, res.Case, res.Workers,
			res.PerSecond.Median, res.PerSecond.Min, res.PerSecond.Max)
		if res.P99 > 0 {
			fmt.Fprintf(&b, "  p50 %.1f ms, p99 %.1f ms", res.P50, res.P99)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	for _, line := range r.ratioLines() {
		b.WriteString(strings.Join(line, "  ") + "\n")
	}
	return b.String()
}

// ratioLines are what was asked, for each broker and number of workers.
func (r *results) ratioLines() [][]string {
	var lines [][]string
	var done []string
	for _, c := range r.order {
		group := fmt.Sprint(c.Broker, c.Workers)
		if slices.Contains(done, group) {
			continue
		}
		done = append(done, group)
		for _, q := range ratios {
			s, ok := r.of(c.Broker, c.Workers, q)
			if !ok {
				continue
			}
			lines = append(lines, []string{c.Broker, fmt.Sprint(c.Workers), q.what + " / " + q.base,
				fmt.Sprintf("%.2f", s.Median), fmt.Sprintf("%.2f to %.2f", s.Min, s.Max)})
		}
	}
	return lines
}

// write writes the results for machines and for people. It runs in bench/.
func (r *results) write(ctx context.Context, db *database, o options) error {
	data, err := json.MarshalIndent(r.list(), "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile("results.json", append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile("../docs/benchmarks.svg", []byte(r.chart()), 0o644); err != nil {
		return err
	}
	page, err := r.page(ctx, db, o)
	if err != nil {
		return err
	}
	return os.WriteFile("../docs/benchmarks.md", []byte(page), 0o644)
}
