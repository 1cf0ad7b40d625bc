// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pkg/errors"
)

// What a guard is told, a word and perhaps a quoted argument on each line.
const (
	guardMark   = "mark"   // that of the processes to end
	guardRemove = "remove" // a directory to remove
	guardDone   = "done"   // the launcher has seen to all that
)

// Guard is what a second process of the launcher does: it waits until the launcher is gone, and if that was against its
// will (SIGKILL, out of memory) it ends the workers and removes what the launcher has built. It is told about them on its
// input.
func Guard(input io.Reader) {
	var marks, directories []string
	for lines := bufio.NewScanner(input); lines.Scan(); {
		word, quoted, _ := strings.Cut(lines.Text(), " ")
		argument, _ := strconv.Unquote(quoted)
		switch word {
		case guardMark:
			marks = append(marks, argument)
		case guardRemove:
			directories = append(directories, argument)
		case guardDone:
			return
		}
	}
	for _, mark := range marks {
		sweep(mark, 0)
	}
	for _, directory := range directories {
		os.RemoveAll(directory)
	}
}

// guard is the launcher's end of its guard; nil where there can be none.
type guard struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// startGuard starts the guard of this launcher, for processes with the mark.
func startGuard(self []string, mark string) (*guard, error) {
	if !canSweep {
		return nil, nil
	}
	g := &guard{cmd: exec.Command(self[0], append(self[1:len(self):len(self)], "--guard")...)}
	g.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, envMark+"=") })
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends the launcher must not end the guard
	var err error
	if g.input, err = g.cmd.StdinPipe(); err == nil {
		err = g.cmd.Start()
	}
	if err == nil {
		err = g.tell(guardMark, mark)
	}
	if err != nil {
		return nil, errors.Errorf("epl: cannot start the guard, which ends the workers if the launcher is killed: %v", err)
	}
	return g, nil
}

func (g *guard) tell(word, argument string) error {
	_, err := fmt.Fprintf(g.input, "%s %q\n", word, argument)
	return err
}

// removes tells the guard of a directory that must not stay. That the guard itself is gone is nobody's harm until the
// launcher is killed too.
func (g *guard) removes(directory string) {
	if g != nil {
		_ = g.tell(guardRemove, directory)
	}
}

// dismiss tells the guard that all is well.
func (g *guard) dismiss() {
	if g != nil {
		_ = g.tell(guardDone, "")
		g.input.Close()
		_ = g.cmd.Wait()
	}
}
