//go:build unix

// Command services provides the servers for the tests and the examples:
// PostgreSQL, RabbitMQ and Kafka. For each one it takes the address in the
// environment (DATABASE_URL, AMQP_URL, KAFKA_BROKERS), else Docker, else the
// programs of this machine, which it installs with apt-get where they are
// missing. Kafka may be missing, unless CI=true is set.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/ackafter/ackafter/internal/servers"
)

const usage = `Usage: services [-install packages] command

Commands:
  up            start what is missing, and leave the addresses in .services/env
  down          stop what "up" started, and delete its data
  status        show which servers there are
  env           print the addresses of what "up" started
  run -- cmd …  run cmd with the addresses in its environment, starting what is
                missing and stopping it again

Flags:
`

func main() { os.Exit(mainCode(os.Args[1:])) }

func mainCode(args []string) int {
	flags := flag.NewFlagSet("services", flag.ContinueOnError)
	install := flags.String("install", "", "comma-separated Debian `packages` to install as well, if their programs are missing")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return 2
	}
	code, err := dispatch(packageList(*install), flags.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		return max(code, 1)
	}
	return code
}

func packageList(flag string) []string {
	return strings.FieldsFunc(flag, func(r rune) bool { return r == ',' || r == ' ' })
}

func dispatch(packages, args []string) (int, error) {
	directory, err := os.Getwd()
	if err != nil {
		return 1, fmt.Errorf("find the working directory: %w", err)
	}
	root, err := servers.ModuleRoot(directory)
	if err != nil {
		return 1, err
	}
	p := &provider{root: root, services: allServices(), packages: packages, progress: os.Stderr}
	if args[0] == "run" {
		return run(p, args[1:])
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	switch args[0] {
	case "up":
		return 0, p.up(ctx)
	case "down":
		return 0, p.down(ctx)
	case "status":
		return 0, p.status(ctx, os.Stdout)
	case "env":
		return 0, p.env(os.Stdout)
	default:
		return 2, fmt.Errorf("unknown command %q: up, down, status, env and run are known", args[0])
	}
}
