// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/easyparallel/epl/ir"
)

// Here returns the innermost line of the user's code on the stack: outside GoMLX, EPL and the Go runtime. Where the
// graph was built without any, the line of GoMLX's layers or losses that made the op, or "".
func Here() ir.Source {
	user, library := walk(nil)
	return cmp.Or(user, library)
}

// caller is what called EPL's optimizer: a line of the user's code, or else of GoMLX's.
type caller struct{ user, library ir.Source }

// found is what a walk up the stack found.
type found struct {
	user, library ir.Source
	optimizer     bool // it ended at EPL's optimizer
}

// stack is where the calls on a stack return to. It says which lines are on it.
type stack struct {
	returns [64]uintptr
	known   bool // what called EPL's optimizer
}

// stacks remembers what was found: the layers of a model and the updates of its variables have few stacks, and looking at all frames of one costs more than recording an op.
var stacks = struct {
	sync.Mutex
	found map[stack]found
}{found: map[stack]found{}}

// walk looks for the line, up to the call of EPL's optimizer if it is known what called that: all ops of an optimizer have the same stack from there on.
//
//go:noinline
func walk(optimizer *caller) (user, library ir.Source) {
	const most = 1 << 14 // stacks that are remembered
	at := stack{known: optimizer != nil}
	if returns(&at.returns) < 0 {
		f := search(at.known)
		return f.of(optimizer)
	}
	stacks.Lock()
	defer stacks.Unlock()
	f, ok := stacks.found[at]
	if !ok {
		if f = search(at.known); len(stacks.found) < most {
			stacks.found[at] = f
		}
	}
	return f.of(optimizer)
}

// of is the line, where optimizer called EPL's optimizer.
func (f found) of(optimizer *caller) (user, library ir.Source) {
	if f.optimizer {
		return optimizer.user, cmp.Or(f.library, optimizer.library)
	}
	return f.user, f.library
}

// search looks for the line above the caller of walk. If what called EPL's optimizer is known, it goes no further than that.
func search(known bool) (f found) {
	var pcs [64]uintptr
	// Most lines are near: look at a few frames before asking for all.
	for _, depth := range []int{12, len(pcs)} {
		f.library = ""
		n := runtime.Callers(4, pcs[:depth])
		for _, pc := range pcs[:n] {
			for _, frame := range framesAt(pc) {
				switch {
				case frame.kind == userFrame:
					return found{user: frame.source}
				case frame.kind == libraryFrame:
					f.library = cmp.Or(f.library, frame.source)
				case frame.kind == optimizerFrame && known:
					f.optimizer = true
					return f
				case frame.kind == endFrame:
					return f
				}
			}
		}
		if n < depth {
			break
		}
	}
	return f
}

type frameKind uint8

const (
	ownFrame     frameKind = iota // EPL, core of GoMLX, Go runtime: never what made the op
	libraryFrame                  // GoMLX's layers, losses, optimizers
	userFrame
	optimizerFrame // EPL's optimizer, which calls the user's
	endFrame       // GoMLX starts to build a graph here: who asked for it did not write the op
)

type frame struct {
	kind   frameKind
	source ir.Source
}

// frames remembers what a program counter means: looking it up costs more than recording an op.
var frames sync.Map // uintptr → []frame

func framesAt(pc uintptr) []frame {
	if fs, ok := frames.Load(pc); ok {
		return fs.([]frame)
	}
	var fs []frame
	it := runtime.CallersFrames([]uintptr{pc})
	for {
		f, more := it.Next()
		fs = append(fs, frame{
			kind:   kindOf(f.Function, f.File),
			source: ir.Source(fmt.Sprintf("%s/%s:%d", filepath.Base(filepath.Dir(f.File)), filepath.Base(f.File), f.Line)),
		})
		if !more {
			break
		}
	}
	frames.Store(pc, fs)
	return fs
}

const (
	module = "github.com/easyparallel/epl"
	gomlx  = "github.com/gomlx/gomlx/"
)

// root is the folder of EPL's sources, as programs name it.
var root = func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(file))
}()

func kindOf(function, file string) frameKind {
	pkg := function
	if i := strings.Index(pkg[strings.LastIndexByte(pkg, '/')+1:], "."); i >= 0 {
		pkg = pkg[:strings.LastIndexByte(pkg, '/')+1+i]
	}
	switch {
	case strings.HasSuffix(file, "_test.go"):
		return userFrame
	case strings.HasPrefix(function, gomlx+"core/graph.(*Exec)"), strings.HasPrefix(function, gomlx+"core/graph.NewExec"):
		return endFrame
	case strings.HasPrefix(function, gomlx+"core/"), strings.HasPrefix(function, "github.com/gomlx/compute"),
		strings.HasPrefix(function, gomlx+"support/"), strings.HasPrefix(function, gomlx+"ml/model."),
		strings.HasPrefix(function, gomlx+"ml/train."):
		return ownFrame
	case strings.HasPrefix(function, gomlx):
		return libraryFrame
	case strings.HasPrefix(function, module+".wrapped") && strings.HasSuffix(function, ".UpdateGraph"):
		return optimizerFrame
	case filepath.Dir(file) == root: // a function literal that is inlined into the user's code bears a name of that
		return ownFrame
	case pkg == module, pkg == module+"/record", pkg == "runtime", pkg == "reflect", pkg == "testing", pkg == "slices", pkg == "sync":
		return ownFrame
	}
	return userFrame
}
