//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ackafter/ackafter/internal/servers"
)

// up starts what is missing and leaves it running.
func (p *provider) up(ctx context.Context) (err error) {
	lock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := p.removeStaleRuns(ctx); err != nil {
		return err
	}
	found, err := p.provide(ctx, p.state("up"), true)
	if err != nil {
		return errors.Join(err, p.closeInstances())
	}
	for _, server := range found {
		p.say("%s: %s (%s)", server.service.name(), server.url, server.source)
	}
	path := filepath.Join(p.root, servers.EnvFile)
	// Renamed into place: a test may read it at this moment.
	if err := os.WriteFile(path+".new", []byte(strings.Join(p.environment(found), "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the addresses: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the addresses: %w", err)
	}
	return nil
}

// down stops what up started, and what dead runs left.
func (p *provider) down(ctx context.Context) (err error) {
	lock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	err = errors.Join(p.removeStaleRuns(ctx), p.removeSet(ctx, p.state("up")))
	if removeErr := os.Remove(filepath.Join(p.root, servers.EnvFile)); !errors.Is(removeErr, fs.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	return err
}

// status shows the servers without starting any.
func (p *provider) status(ctx context.Context, output io.Writer) error {
	for _, s := range p.services {
		server, ok, err := p.findOne(ctx, s)
		if err != nil {
			return err
		}
		line := "not running"
		if ok {
			line = fmt.Sprintf("%s (%s)", server.url, server.source)
		}
		if _, err := fmt.Fprintf(output, "%s: %s\n", s.name(), line); err != nil {
			return fmt.Errorf("print the status: %w", err)
		}
	}
	return nil
}

// env prints the addresses in the form of the shell.
func (p *provider) env(output io.Writer) error {
	for _, s := range p.services {
		url, err := servers.Lookup(s.variable())
		if err != nil && servers.Missing(s.variable()) != "" {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(output, "export %s='%s'\n", s.variable(), strings.ReplaceAll(url, "'", `'\''`)); err != nil {
			return fmt.Errorf("print the addresses: %w", err)
		}
	}
	return nil
}
