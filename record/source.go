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

// walk looks for the line, up to the call of EPL's optimizer if it is known what called that: all ops of an optimizer have the same stack from there on.
func walk(optimizer *caller) (user, library ir.Source) {
	var pcs [64]uintptr
	// Most lines are near: look at a few frames before asking for all. Frames cost more than all else of recording an op.
	for _, depth := range []int{12, len(pcs)} {
		library = ""
		n := runtime.Callers(3, pcs[:depth])
		for _, pc := range pcs[:n] {
			for _, f := range framesAt(pc) {
				switch {
				case f.kind == userFrame:
					return f.source, ""
				case f.kind == libraryFrame:
					library = cmp.Or(library, f.source)
				case f.kind == optimizerFrame && optimizer != nil:
					return optimizer.user, cmp.Or(library, optimizer.library)
				case f.kind == endFrame:
					return "", library
				}
			}
		}
		if n < depth {
			break
		}
	}
	return "", library
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
