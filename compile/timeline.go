// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/trace"
)

// timeline writes what the devices do in training steps to the file of EPL_TRACE. The file is whole after every step, so
// that a job that is killed has one, too.
type timeline struct {
	file  string
	which trace.Range
	mu    sync.Mutex
	steps int           // so far
	done  []*trace.Step // that are in the file
	wrote time.Duration // how long that took the last time
	// waits is how long training has waited for batches, in nanoseconds; nil: nobody measures it. waited is what it was after the last step that was collected.
	waits  *atomic.Int64
	waited int64
}

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
	t.steps++
	if has, _ := t.which.Has(t.steps); t.file == "" || !has {
		return nil
	}
	s := &trace.Step{Program: program, Number: t.steps, Overhead: t.wrote}
	if t.waits != nil && len(t.done) > 0 {
		s.Fetched = time.Duration(t.waits.Load() - t.waited)
	}
	return s
}

// end writes a step that was collected.
func (t *timeline) end(s *trace.Step) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits != nil {
		t.waited = t.waits.Load()
	}
	defer func(start time.Time) { t.wrote = s.Late + time.Since(start) }(time.Now())
	if _, replaces := t.which.Has(s.Number); replaces {
		t.done = nil
	}
	t.done = append(t.done, s)
	var b bytes.Buffer
	if err := trace.Write(&b, t.done...); err != nil {
		return errors.Wrap(err, "epl: EPL_TRACE")
	}
	if err := os.MkdirAll(filepath.Dir(t.file), 0o755); err != nil {
		return errors.Wrap(err, "epl: EPL_TRACE")
	}
	return errors.Wrap(os.WriteFile(t.file, b.Bytes(), 0o644), "epl: EPL_TRACE")
}

// close says why there is no timeline, if one was asked for.
func (t *timeline) close(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == "" || len(t.done) > 0 {
		return
	}
	if t.steps > 0 {
		fmt.Fprintf(w, "epl: EPL_TRACE: %s was not written: EPL_TRACE_STEPS=%s, and the program ended after %s\n", t.file, t.which, words.Count(t.steps, "training step"))
		return
	}
	fmt.Fprintf(w, "epl: EPL_TRACE: %s was not written: no training step ran; a step is one with epl.Optimizer\n", t.file)
}
