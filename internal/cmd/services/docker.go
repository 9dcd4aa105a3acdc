//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	containersFile = "docker.json"
	dockerLimit    = 10 * time.Second // for a question to the daemon
	pullLimit      = 10 * time.Minute // for the start, with the download of the images
)

// containers records the compose project of a set.
type containers struct {
	Project string            `json:"project"`
	URLs    map[string]string `json:"urls"` // by the names of the services
}

func readContainers(set string) containers {
	var c containers
	content, err := os.ReadFile(filepath.Join(set, containersFile))
	if err != nil || json.Unmarshal(content, &c) != nil {
		return containers{} // No Docker in this set.
	}
	return c
}

func (c containers) write(set string) error {
	content, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record of the containers: %w", err)
	}
	if err := os.MkdirAll(set, 0o755); err != nil {
		return fmt.Errorf("record the containers: %w", err)
	}
	if err := os.WriteFile(filepath.Join(set, containersFile), content, 0o600); err != nil {
		return fmt.Errorf("record the containers: %w", err)
	}
	return nil
}

// startContainers starts the missing services with Docker. It returns what it
// started, and what is left for the programs of this machine: everything when
// there is no Docker, or when it fails.
func (p *provider) startContainers(ctx context.Context, set string, missing []service) ([]provided, []service) {
	if !dockerAnswers(ctx) {
		return nil, missing
	}
	started, err := p.composeUp(ctx, set, missing)
	if err != nil {
		p.say("Docker answers but did not start the servers; trying the programs of this machine: %v", err)
		if err := p.stopContainers(context.WithoutCancel(ctx), set); err != nil {
			p.say("%v", err)
		}
		return nil, missing
	}
	return started, nil
}

func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, dockerLimit)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "info").Run() == nil &&
		exec.CommandContext(ctx, "docker", "compose", "version").Run() == nil
}

func (p *provider) composeUp(ctx context.Context, set string, missing []service) ([]provided, error) {
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()
	// The project's name tells the sets of all checkouts apart.
	hash := fnv.New64a()
	hash.Write([]byte(set))
	c := containers{Project: fmt.Sprintf("ackafter-%x", hash.Sum64()), URLs: map[string]string{}}
	maps.Copy(c.URLs, readContainers(set).URLs) // of those that are not missing
	// Recorded before they are started, for the case that we are killed.
	if err := c.write(set); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	// Kafka tells its clients where it is, so it must know its port outside.
	if err := os.Setenv("ACKAFTER_KAFKA_PORT", port); err != nil {
		return nil, fmt.Errorf("tell docker a port for Kafka: %w", err)
	}
	args := []string{"up", "--detach", "--wait"}
	for _, s := range missing {
		p.say("starting %s with Docker …", s.name())
		args = append(args, s.name())
	}
	if _, err := p.compose(ctx, c.Project, args...); err != nil {
		return nil, err
	}
	var started []provided
	for _, s := range missing {
		address, err := p.compose(ctx, c.Project, "port", s.name(), s.containerPort())
		if err != nil {
			return nil, err
		}
		url := s.containerURL(strings.TrimSpace(address))
		if err := s.ping(ctx, url); err != nil {
			return nil, err
		}
		c.URLs[s.name()] = url
		started = append(started, provided{service: s, url: url, source: "Docker"})
	}
	return started, c.write(set)
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}

func (p *provider) compose(ctx context.Context, project string, args ...string) (string, error) {
	args = append([]string{"compose", "--project-name", project, "--file", filepath.Join(p.root, "compose.yaml")}, args...)
	output, err := exec.CommandContext(ctx, "docker", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, lastLines(string(exit.Stderr), 5))
	}
	if err != nil {
		return "", fmt.Errorf("docker %s: %w", strings.Join(args, " "), err)
	}
	return string(output), nil
}

// stopContainers removes the containers of a set and their data.
func (p *provider) stopContainers(ctx context.Context, set string) error {
	c := readContainers(set)
	if c.Project == "" {
		return nil
	}
	if _, err := p.compose(ctx, c.Project, "down", "--volumes"); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(set, containersFile)); err != nil {
		return fmt.Errorf("remove the record of the containers: %w", err)
	}
	return nil
}
