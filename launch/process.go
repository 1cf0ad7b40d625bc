// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/errors"
)

// process is the process of one worker, the leader of a process group of its own.
type process struct {
	worker  int
	cmd     *exec.Cmd
	outputs []*os.File      // our ends of its pipes
	events  func(io.Reader) // reads what it tells a dashboard; nil: nobody does
	readers sync.WaitGroup

	mu   sync.Mutex
	gone bool
}

// start starts a worker. Its output is read by read, which must return at its end. Must be called on a thread that
// outlives the process: see [ownThread].
func (p *process) start(read func(stream int, r io.Reader)) error {
	var theirs []*os.File
	defer func() {
		for _, file := range theirs {
			file.Close()
		}
	}()
	for range 2 {
		ours, write, err := os.Pipe()
		if err != nil {
			return err
		}
		p.outputs, theirs = append(p.outputs, ours), append(theirs, write)
	}
	p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1]
	if p.events != nil {
		ours, write, variable, err := eventsPipe()
		if err != nil {
			p.closeOutputs()
			return errors.Errorf("epl: cannot start worker %d: %v", p.worker, err)
		}
		p.outputs, theirs, p.cmd.ExtraFiles = append(p.outputs, ours), append(theirs, write), []*os.File{write}
		p.cmd.Env = append(p.cmd.Env, variable)
	}
	p.cmd.SysProcAttr = withParent(&syscall.SysProcAttr{Setpgid: true})
	if err := p.cmd.Start(); err != nil {
		p.closeOutputs()
		return errors.Errorf("epl: cannot start worker %d: %v", p.worker, err)
	}
	for i, output := range p.outputs {
		p.readers.Go(func() {
			if i+1 == eventsFile {
				p.events(output)
			} else {
				read(i+1, output)
			}
		})
	}
	return nil
}

// wait returns how the process ended.
func (p *process) wait() exit {
	p.cmd.Wait() // what it says is in the state
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	e := exit{Worker: p.worker, Code: p.cmd.ProcessState.ExitCode()}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = int(status.Signal())
	}
	return e
}

// signal sends a signal to the process and to those of its group. After its end the number may belong to another.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone && p.cmd.Process != nil {
		syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

func (p *process) closeOutputs() {
	for _, output := range p.outputs {
		output.Close()
	}
}

// unclearGrace is how long a process without an environment is looked at again: one that has just called exec has none
// until its new program is in place.
const unclearGrace = 200 * time.Millisecond

// sweep ends all processes with a mark, wherever they have gone: first by asking them, and after the grace for good.
func sweep(mark string, grace time.Duration) {
	deadline := time.Now().Add(grace)
	asked, since, empty := map[int]bool{}, map[int]time.Time{}, 0
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pids, unclear := marked(mark)
		young := false
		for _, pid := range unclear {
			if since[pid].IsZero() {
				since[pid] = time.Now()
			}
			young = young || time.Since(since[pid]) < unclearGrace
		}
		if len(pids) > 0 || young {
			empty = 0
		} else if empty++; empty == 2 { // one that started while its parent ended may be missed by the first look
			return
		}
		for _, pid := range pids {
			if time.Now().After(deadline) {
				syscall.Kill(pid, syscall.SIGKILL)
			} else if !asked[pid] {
				asked[pid] = true
				syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		if time.Now().After(deadline.Add(5 * time.Second)) {
			return // they hang in the kernel: nobody can end them
		}
		time.Sleep(pause)
	}
}
