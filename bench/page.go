package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

const pageHead = `# Benchmarks

Written by ` + "`make bench`" + `: do not edit. What the knobs are for is in [performance.md](performance.md).

![messages per second](benchmarks.svg)

Every case has the same work: a backlog of messages of 1 KiB of JSON, one ` + "`update`" + ` for each on one of 1 000 accounts, ` + "`synchronous_commit`" + `
on, servers and worker on one machine. RabbitMQ hands out 1 000 messages at once in all cases, and a Kafka topic has a partition for
each worker. Four workers of Watermill are four subscribers on RabbitMQ, and one on Kafka, which handles its partitions at once. Each runs in a process of its own, several times, in turn with the others; the first
1 000 messages for each worker are not counted: after an assignment the Kafka source takes them for redelivered, and each costs this
library two transactions more (a batch of them shares these), once. A figure counts only if the accounts are right afterwards.

| case | |
|---|---|
| hand | a loop by hand with an inbox: begin, insert, update, commit, acknowledge |
| watermill | the same in a handler of a Watermill router |
| maxbatch-1, maxbatch-100 | this library |
| queued | with inbox.Queue, MaxBatch 100 |
| batchhandler | with a BatchHandler, MaxBatch 100 |
| group-ceiling, queued-ceiling | a loop by hand that commits up to 100 messages at once, with a statement for each, or all of them in one round trip. It sorts them by account, so that it never deadlocks, which a library cannot do for its handlers, and handles no failure |
| broker | receive and acknowledge, nothing else |
| duplicates-10, duplicates-only, failing-1, old-rows-10m | maxbatch-100 with 10 % duplicates (each about 1 000 messages behind its original), with nothing new, with 1 % of messages that are set aside (one in each hundred, evenly, which is the worst for batches), with 10 million older rows of random ids |
| latency-1, latency-100 | 500 messages a second, MaxBatch 1 and 100 |

`

// accountsNote says what -accounts means for the figures.
var accountsNote = map[string]string{
	accountsRandom: "Accounts are random, and each message has its account for a key. So no two workers of this library change one account at\n" +
		"once, and neither do two partitions. Without keys, batches of several workers on few rows deadlock: see [performance.md](performance.md#deadlocks).",
	accountsApart: "Messages near each other change different accounts, so that no two transactions meet. Where they do, and several messages are\n" +
		"committed at once, deadlocks make 4 workers much slower than here: see [performance.md](performance.md#deadlocks).",
}

// page is docs/benchmarks.md.
func (r *results) page(ctx context.Context, db *database, o options) (string, error) {
	var postgres string
	if err := db.pool.QueryRow(ctx, "show server_version").Scan(&postgres); err != nil {
		return "", err
	}
	servers := []string{"PostgreSQL " + postgres}
	for _, name := range o.brokers {
		broker, err := openBroker(name)
		if err != nil {
			return "", err
		}
		version, err := broker.version(ctx)
		if err != nil {
			return "", err
		}
		servers = append(servers, version)
	}
	var b strings.Builder
	b.WriteString(pageHead)
	b.WriteString(accountsNote[o.accounts] + "\n\n")
	fmt.Fprintf(&b, "Measured on %s: %d cores (%s), %s, %s, %s.\n\n", time.Now().Format("2006-01-02"),
		runtime.NumCPU(), processor(), runtime.Version(), strings.Join(servers, ", "), strings.Join(peers(), ", "))
	b.WriteString("| broker | case | workers | msg/s (median) | least | most | allocations | bytes | peak RSS |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, res := range r.list() {
		if res.P99 > 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %.0f | %.0f | %.0f | %.0f | %.0f | %d MiB |\n", res.Broker, res.Case, res.Workers,
			res.PerSecond.Median, res.PerSecond.Min, res.PerSecond.Max, res.Allocs, res.Bytes, res.PeakRSS>>20)
	}
	b.WriteString("\nFrom publish to commit, at 500 messages a second:\n\n| broker | case | p50 | p99 |\n|---|---|---|---|\n")
	for _, res := range r.list() {
		if res.P99 > 0 {
			fmt.Fprintf(&b, "| %s | %s | %.1f ms | %.1f ms |\n", res.Broker, res.Case, res.P50, res.P99)
		}
	}
	b.WriteString("\nHow many times as much, round by round:\n\n| broker | workers | | median | spread |\n|---|---|---|---|---|\n")
	for _, line := range r.ratioLines() {
		b.WriteString("| " + strings.Join(line, " | ") + " |\n")
	}
	return b.String(), nil
}

// processor returns the name of the processor, as Linux tells.
func processor() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// peers returns the versions of what was compared.
func peers() []string {
	info, _ := debug.ReadBuildInfo()
	var all []string
	for _, d := range info.Deps {
		for _, p := range []string{"watermill", "watermill-amqp/v3", "watermill-kafka/v3", "pgx/v5", "amqp091-go", "kafka-go"} {
			if strings.HasSuffix(d.Path, "/"+p) {
				all = append(all, strings.TrimPrefix(d.Path, "github.com/")+" "+d.Version)
			}
		}
	}
	return all
}
