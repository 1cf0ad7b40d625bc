package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// dump collects what a program looks like after every pass.
type dump struct {
	dir    string // "": nothing is collected
	base   string
	title  string
	stages []dumpStage
}

type dumpStage struct {
	name, why string
	program   *ir.Program
}

var unfriendly = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

func newDump(dir string, number int, p *ir.Program) *dump {
	name := strings.Trim(unfriendly.ReplaceAllString(p.Name, "_"), "_")
	if len(name) > 60 {
		name = name[len(name)-60:]
	}
	return &dump{dir: dir, base: fmt.Sprintf("%02d-%s", number, name), title: p.Name}
}

func (d *dump) add(name, why string, p *ir.Program) {
	if d.dir != "" {
		d.stages = append(d.stages, dumpStage{name, why, p.Clone()})
	}
}

// write makes one text file per stage, and one page.
func (d *dump) write() error {
	if d.dir == "" {
		return nil
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return errors.Wrap(err, "epl: EPL_DUMP")
	}
	for i, s := range d.stages {
		path := filepath.Join(d.dir, fmt.Sprintf("%s-%02d-%s.txt", d.base, i, s.name))
		if err := os.WriteFile(path, []byte(s.program.String()), 0o644); err != nil {
			return errors.Wrap(err, "epl: EPL_DUMP")
		}
	}
	return nil
}
