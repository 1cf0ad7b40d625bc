// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// logs are the files that keep what workers print, one for each. They may hold what is nobody else's business, and are the
// user's alone.
type logs struct {
	say   func(format string, args ...any) // tells the user
	files map[int]*os.File
	lost  map[int]error // why a log is incomplete
}

// open makes a log for each of the workers first, first+1, … of a job of so many. A run with the same label goes on where the
// last one ended, and says so.
func (l *logs) open(directory string, first, count, workers int) error {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return errors.Errorf("epl: cannot make the directory for logs: %v; choose another --log_dir", err)
	}
	earlier := false
	for worker := first; worker < first+count; worker++ {
		path, err := filepath.Abs(filepath.Join(directory, logName(worker)))
		var file *os.File
		if err == nil {
			file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		}
		var continued bool
		if err == nil {
			l.files[worker] = file
			continued, err = takeOver(file)
		}
		if err != nil {
			return errors.Errorf("epl: cannot write the log of worker %d: %v; choose another --log_dir", worker, err)
		}
		earlier = earlier || continued
	}
	if earlier {
		l.say("%s has logs of an earlier run: this one is appended to them; another --task_label keeps them apart", directory)
	}
	if stale := staleLogs(directory, workers); len(stale) > 0 {
		l.say("%s has logs of an earlier run with more workers, which this one does not touch: %s", directory, strings.Join(stale, ", "))
	}
	return nil
}

func logName(worker int) string { return fmt.Sprintf("worker-%d.log", worker) }

// takeOver makes a log that was there already the user's alone, and marks where the new run begins in it.
func takeOver(file *os.File) (continued bool, err error) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := file.Chmod(0o600); err != nil {
			return false, err
		}
	}
	if info.Size() == 0 {
		return false, nil
	}
	_, err = fmt.Fprintf(file, "epl-launch: a new run begins here, %s\n", time.Now().Format(time.DateTime))
	return true, err
}

// staleLogs returns the logs of workers that this job does not have.
func staleLogs(directory string, workers int) (names []string) {
	var found []int
	files, _ := filepath.Glob(filepath.Join(directory, "worker-*.log"))
	for _, file := range files {
		number := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "worker-"), ".log")
		if worker, err := strconv.Atoi(number); err == nil && worker >= workers {
			found = append(found, worker)
		}
	}
	slices.Sort(found)
	for _, worker := range found {
		names = append(names, logName(worker))
	}
	return names
}

// write adds a line to a worker's log. The first that cannot be written is said, and is the log's end: one with holes would
// mislead.
func (l *logs) write(worker int, text string) {
	file := l.files[worker]
	if file == nil || l.lost[worker] != nil {
		return
	}
	if _, err := file.WriteString(text + "\n"); err != nil {
		l.lose(worker, err)
	}
}

func (l *logs) lose(worker int, err error) {
	if len(l.lost) == 0 {
		l.say("%v: from here on, what worker %d prints is shown, but not logged", err, worker)
	}
	l.lost[worker] = err
}

// close closes the logs, and says which are incomplete. Doing it twice is harmless.
func (l *logs) close() {
	open := false
	for worker, file := range l.files {
		err := file.Close()
		if errors.Is(err, os.ErrClosed) {
			continue
		}
		if open = true; err != nil && l.lost[worker] == nil {
			l.lose(worker, err)
		}
	}
	if open && len(l.lost) > 0 {
		l.say("what %s printed is not all in the logs", workersText(slices.Sorted(maps.Keys(l.lost))))
	}
}

// where names a worker's log, for the end of a sentence.
func (l *logs) where(worker int) string {
	file := l.files[worker]
	switch {
	case file == nil:
		return ""
	case l.lost[worker] != nil:
		return "; its log, which is incomplete, is " + file.Name()
	}
	return "; its log is " + file.Name()
}

// workersText is "worker 1", "workers 0 and 2" or "workers 0, 2 and 3".
func workersText(workers []int) string {
	if len(workers) == 1 {
		return "worker " + itoa(workers[0])
	}
	var b strings.Builder
	b.WriteString("workers ")
	for i, worker := range workers {
		switch {
		case i == 0:
		case i == len(workers)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(itoa(worker))
	}
	return b.String()
}
