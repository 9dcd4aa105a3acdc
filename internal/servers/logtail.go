//go:build unix

package servers

import (
	"io"
	"os"
	"strings"
)

// logTail returns the end of what the process has logged, for an error.
func (p *process) logTail() string {
	const limit = 4096
	file, err := os.Open(p.spec.logPath)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	from := p.logStart
	if info, err := file.Stat(); err == nil {
		from = max(from, info.Size()-limit)
	}
	content, err := io.ReadAll(io.NewSectionReader(file, from, limit))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(content))
}
