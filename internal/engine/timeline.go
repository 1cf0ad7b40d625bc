package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/trace"
)

// timeline writes what the devices do in one training step to the file of EPL_TRACE. The first steps are slower than
// the others, so each of them overwrites the one before, up to the third.
type timeline struct {
	file  string
	mu    sync.Mutex
	steps int
}

const tracedSteps = 3

// ofWorker returns the name of another worker's file: trace.json becomes trace.worker1.json.
func ofWorker(file string, worker int) string {
	if file == "" {
		return ""
	}
	ext := filepath.Ext(file)
	return fmt.Sprintf("%s.worker%d%s", strings.TrimSuffix(file, ext), worker, ext)
}

// begin says who collects the events of a step; nil: nobody.
func (t *timeline) begin(program string) *trace.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == "" || t.steps == tracedSteps {
		return nil
	}
	t.steps++
	return &trace.Step{Program: program, Number: t.steps}
}

// end writes a step that was collected.
func (t *timeline) end(s *trace.Step) error {
	if err := os.MkdirAll(filepath.Dir(t.file), 0o755); err != nil {
		return errors.Wrap(err, "epl: EPL_TRACE")
	}
	f, err := os.Create(t.file)
	if err != nil {
		return errors.Wrap(err, "epl: EPL_TRACE")
	}
	if err := s.WriteChrome(f); err != nil {
		_ = f.Close()
		return errors.Wrap(err, "epl: EPL_TRACE")
	}
	return errors.Wrap(f.Close(), "epl: EPL_TRACE")
}
