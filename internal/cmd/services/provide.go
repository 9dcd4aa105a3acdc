//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ackafter/ackafter/internal/servers"
)

// provider provides the servers of one checkout. Everything is below
// .services:
//
//	lock       held while servers are found, started or stopped
//	env        the addresses of what "up" started
//	up/        what "up" started: a set
//	run-PID/   what one "run" started: a set, locked as long as the run lives
//
// A set has a directory for each server of this machine, and docker.json for
// containers.
type provider struct {
	root     string
	services []service
	packages []string // to install besides those of the services
	progress io.Writer

	mu        sync.Mutex
	instances []instance // what this process started
	absent    []absence  // what is optional and could not be had
}

// absence says why there is no server for an optional service.
type absence struct {
	service service
	reason  error
}

// provided is a server that answers.
type provided struct {
	service service
	url     string
	source  string
}

func (p *provider) state(name string) string { return filepath.Join(p.root, ".services", name) }

func (p *provider) say(format string, args ...any) {
	fmt.Fprintf(p.progress, "services: "+format+"\n", args...)
}

// lock excludes other commands in this checkout.
func (p *provider) lock(ctx context.Context) (*servers.FileLock, error) {
	return servers.WaitLock(ctx, p.state("lock"), func() {
		p.say("waiting for another services command in this checkout …")
	})
}

// provide finds or starts all servers; those it starts belong to set.
func (p *provider) provide(ctx context.Context, set string, detached bool) ([]provided, error) {
	found, missing, err := p.find(ctx)
	if err != nil {
		return nil, err
	}
	var native []service
	if len(missing) > 0 {
		var started []provided
		started, native = p.startContainers(ctx, set, missing)
		found = append(found, started...)
	}
	native, err = p.install(ctx, native)
	if err != nil {
		return nil, err
	}
	started, err := p.startNative(ctx, set, native, detached)
	return append(found, started...), err
}

// find returns the servers that are there already, and what is missing.
func (p *provider) find(ctx context.Context) (found []provided, missing []service, err error) {
	for _, s := range p.services {
		switch server, ok, err := p.findOne(ctx, s); {
		case err != nil:
			return nil, nil, err
		case ok:
			found = append(found, server)
		default:
			missing = append(missing, s)
		}
	}
	return found, missing, nil
}

func (p *provider) findOne(ctx context.Context, s service) (server provided, ok bool, err error) {
	if url := os.Getenv(s.variable()); url != "" {
		if err := s.ping(ctx, url); err != nil {
			return server, false, fmt.Errorf("%s is set in the environment, but no server answers there: start it, or unset %s: %w", s.variable(), s.variable(), err)
		}
		return provided{service: s, url: url, source: "the environment"}, true, nil
	}
	url, err := servers.Running(ctx, directory(p.state("up"), s))
	if err != nil {
		return server, false, err
	}
	source := "a private server"
	if url == "" {
		url, source = readContainers(p.state("up")).URLs[s.name()], "Docker"
	}
	if url == "" || s.ping(ctx, url) != nil {
		return server, false, nil
	}
	return provided{service: s, url: url, source: source}, true, nil
}

// startNative starts the programs of this machine, at the same time since
// RabbitMQ is slow.
func (p *provider) startNative(ctx context.Context, set string, native []service, detached bool) ([]provided, error) {
	var started []provided
	failures := make([]error, len(native))
	var group sync.WaitGroup
	for n, s := range native {
		p.say("starting %s …", s.name())
		group.Go(func() {
			server, err := s.startNative(ctx, directory(set, s), detached)
			if err != nil {
				failures[n] = p.without(ctx, s, fmt.Errorf("%w (to use another server, set %s)", err, s.variable()))
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.instances = append(p.instances, server)
			started = append(started, provided{service: s, url: server.URL(), source: "a private server"})
		})
	}
	group.Wait()
	return started, errors.Join(failures...)
}

// without goes on without a service if it is optional; otherwise it returns
// the reason.
func (p *provider) without(ctx context.Context, s service, reason error) error {
	if !s.optional() || os.Getenv("CI") == "true" || ctx.Err() != nil {
		return reason
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absent = append(p.absent, absence{s, reason})
	p.sayAbsent()
	return nil
}

func (p *provider) sayAbsent() {
	for _, a := range p.absent {
		p.say("WARNING: there is no %s, and what needs a real one is NOT tested: %v", a.service.name(), a.reason)
	}
}

// environment returns the variables with the addresses, and for each service
// that is absent the reason, on one line.
func (p *provider) environment(found []provided) []string {
	var lines []string
	for _, server := range found {
		lines = append(lines, server.service.variable()+"="+server.url)
	}
	for _, a := range p.absent {
		lines = append(lines, servers.MissingVariable(a.service.variable())+"="+strings.Join(strings.Fields(a.reason.Error()), " "))
	}
	return lines
}

// closeInstances stops the servers which this process started.
func (p *provider) closeInstances() error {
	failures := make([]error, len(p.instances))
	var group sync.WaitGroup
	for n, server := range p.instances {
		group.Go(func() { failures[n] = server.Close() })
	}
	group.Wait()
	p.instances = nil
	return errors.Join(failures...)
}

// removeSet stops the servers of a set and deletes it.
func (p *provider) removeSet(ctx context.Context, set string) error {
	err := p.stopContainers(ctx, set)
	for _, s := range p.services {
		err = errors.Join(err, servers.Remove(ctx, directory(set, s)))
	}
	if err != nil {
		return err // Keep the records of what still runs.
	}
	if err := os.RemoveAll(set); err != nil {
		return fmt.Errorf("remove the servers' directory: %w", err)
	}
	return nil
}
