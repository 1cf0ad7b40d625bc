// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/explain"
	"github.com/easyparallel/epl/ir"
)

// dump collects what a program looks like after every pass, for the directory that EPL_DUMP names. For program
// number 3, "train", it writes
//
//	03-train-00-recorded.txt   the program as recorded
//	03-train-01-fused.txt      the program after the first pass, and so on
//	03-train-schedule.txt      what each device does, if there are several or the step has parts
//	03-train.steps             what the engine for CPUs makes of each segment
//	03-train.html              a page about all of it
type dump struct {
	dir    string // "": nothing is written
	keep   bool   // what the program looks like is collected
	base   string
	c      *Compiled
	stages []explain.Stage
}

// newDump makes the directory, so that a wrong one is reported before any work is done.
func newDump(opts Options, c *Compiled) (*dump, error) {
	d := &dump{dir: opts.Dump, keep: opts.Dump != "" || opts.Plan != "" && c.Recorded.IsTraining(), c: c}
	if d.dir == "" {
		return d, nil
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return nil, errors.Wrapf(err, "epl: EPL_DUMP=%q: cannot make this directory", d.dir)
	}
	d.base = claimName(d.dir, fmt.Sprintf("%02d-%s", c.Number, fileName(c.Recorded.Name)))
	return d, nil
}

var unfriendly = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// fileName makes a part of a file name from the name of a program.
func fileName(name string) string {
	name = unfriendly.ReplaceAllString(name, "_")
	if len(name) > 60 { // the end tells more than the start; begin with a whole word
		name = name[len(name)-60:]
		if i := strings.IndexAny(name, "_.-"); i >= 0 && i < 30 {
			name = name[i+1:]
		}
	}
	if name = strings.Trim(name, "_"); name == "" {
		name = "program"
	}
	return name
}

var claimed = struct {
	sync.Mutex
	names map[string]int
}{names: map[string]int{}}

// claimName returns a name that no other program of this process uses in dir. Engines number their programs from 1
// each; without this a second engine would overwrite what the first wrote.
func claimName(dir, base string) string {
	claimed.Lock()
	defer claimed.Unlock()
	path := filepath.Join(dir, base)
	claimed.names[path]++
	if n := claimed.names[path]; n > 1 {
		return fmt.Sprintf("%s-again%d", base, n)
	}
	return base
}

// look is for what collects what the program looks like on its way; nil: nothing does.
func (d *dump) look() func(name, why string, p *ir.Program) {
	if d.keep {
		return d.add
	}
	return nil
}

// add notes what the program looks like now.
func (d *dump) add(name, why string, p *ir.Program) {
	if !d.keep {
		return
	}
	s := explain.Stage{Name: name, Why: why, Program: p.Clone()}
	if d.dir != "" {
		s.File = fmt.Sprintf("%s-%02d-%s.txt", d.base, len(d.stages), name)
	}
	d.stages = append(d.stages, s)
}

// write makes one text file per stage, and one page.
func (d *dump) write() error {
	if d.dir == "" {
		return nil
	}
	var page, steps strings.Builder
	if err := d.c.WritePage(&page, d.stages); err != nil {
		return err
	}
	for _, l := range d.c.Listings {
		steps.WriteString(l.String() + "\n")
	}
	files := [][2]string{{d.base + ".html", page.String()}, {d.base + ".steps", steps.String()}}
	if s := d.c.Schedule; s != nil {
		files = append(files, [2]string{d.base + "-schedule.txt", s.String()})
	}
	for _, s := range d.stages {
		files = append(files, [2]string{s.File, s.Program.String()})
	}
	for _, f := range files {
		if f[1] == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(d.dir, f[0]), []byte(f[1]), 0o644); err != nil {
			return errors.Wrapf(err, "epl: EPL_DUMP=%q: cannot write a program down", d.dir)
		}
	}
	d.c.Page = filepath.Join(d.dir, files[0][0])
	return nil
}
