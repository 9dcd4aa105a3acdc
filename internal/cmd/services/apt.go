//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ackafter/ackafter/internal/servers"
)

// aptScript installs packages without starting the services they contain: a
// policy-rc.d which answers 101 forbids that, as Debian's policy describes.
const aptScript = `set -eu
policy=/usr/sbin/policy-rc.d
mark='# ackafter: temporary'
if [ ! -e "$policy" ] || grep -qxF "$mark" "$policy"; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 130' HUP INT TERM
	printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >"$policy"
	chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
install() {
	apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
}
# The lists of packages may be missing or old.
install "$@" || { apt-get -q -o DPkg::Lock::Timeout=300 update && install "$@"; }
`

// extraPackages says for a package of the -install flag which program shows
// that it is installed, and what else belongs to it.
func extraPackages(name string) (programs, packages []string) {
	switch name {
	case "postgresql":
		return postgreSQL{}.programs(), []string{name}
	case "rabbitmq-server":
		return rabbitMQ{}.programs(), []string{name}
	case "gcc": // for the race detector
		return []string{"gcc"}, []string{"gcc", "libc6-dev"}
	default:
		return []string{name}, []string{name}
	}
}

// install installs what the services, and the packages of the flag, lack. It
// returns the services that can be started: all but optional ones whose
// programs cannot be had.
func (p *provider) install(ctx context.Context, native []service) ([]service, error) {
	var required, startable []service
	for _, s := range native {
		if !s.optional() {
			required = append(required, s)
		}
	}
	packages, err := p.lacking(required)
	if err != nil {
		return nil, err
	}
	if err := p.aptInstall(ctx, append(packages, p.extra()...)); err != nil {
		return nil, err
	}
	for _, s := range native {
		if s.optional() {
			packages, err := p.lacking([]service{s})
			if err == nil {
				err = p.aptInstall(ctx, packages)
			}
			if err != nil {
				if err := p.without(ctx, s, err); err != nil {
					return nil, err
				}
				continue
			}
		}
		startable = append(startable, s)
	}
	return startable, nil
}

// lacking returns the packages with the missing programs of services.
func (p *provider) lacking(services []service) ([]string, error) {
	var packages []string
	for _, s := range services {
		for _, program := range s.programs() {
			if _, err := servers.Binary(program); err != nil {
				var missing *servers.MissingProgramError
				if !errors.As(err, &missing) {
					return nil, err
				}
				packages = append(packages, missing.Package)
			}
		}
	}
	return packages, nil
}

// extra returns the missing packages of the flag.
func (p *provider) extra() []string {
	var packages []string
	for _, name := range p.packages {
		programs, belonging := extraPackages(name)
		if slices.ContainsFunc(programs, func(program string) bool { return !installed(program) }) {
			packages = append(packages, belonging...)
		}
	}
	return packages
}

func installed(program string) bool {
	if _, err := servers.Binary(program); err == nil {
		return true
	}
	_, err := exec.LookPath(program)
	return err == nil
}

func (p *provider) aptInstall(ctx context.Context, packages []string) (err error) {
	if len(packages) == 0 {
		return nil
	}
	slices.Sort(packages)
	packages = slices.Compact(packages)
	names := strings.Join(packages, " ")
	prefix, err := rootPrefix(ctx)
	if err != nil {
		return fmt.Errorf("%s missing: %w; install it by hand, or start Docker, or set %s", names, err, p.variables())
	}
	lock, err := servers.WaitLock(ctx, filepath.Join(os.TempDir(), "ackafter-apt.lock"), func() {
		p.say("waiting for another installation …")
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	p.say("installing %s with apt-get …", names)
	args := slices.Concat(prefix, []string{"/bin/sh", "-c", aptScript, "install"}, packages)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	// SIGKILL in the middle of an installation would leave a broken one.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get install %s: %w\n%s", names, err, lastLines(string(output), 20))
	}
	return nil
}

// rootPrefix returns what to put before a command that needs root.
func rootPrefix(ctx context.Context) ([]string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, errors.New("there is no apt-get on this machine")
	}
	if os.Geteuid() == 0 {
		return nil, nil
	}
	if err := exec.CommandContext(ctx, "sudo", "-n", "true").Run(); err != nil {
		return nil, errors.New("apt-get needs root, and sudo asks for a password or is missing")
	}
	return []string{"sudo", "-n"}, nil
}

func (p *provider) variables() string {
	var names []string
	for _, s := range p.services {
		names = append(names, s.variable())
	}
	return strings.Join(names, " and ")
}

func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
