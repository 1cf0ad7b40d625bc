// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/errors"
)

// Env is the variable by which a launcher tells a worker where its events go: the number of a pipe that the worker has inherited, and the number by which the
// system knows that pipe: 3:123456. Another file that has the number 3 by now is not written to.
const Env = "EPL_DASHBOARD"

// Pipe is what [Env] is to say of a pipe that a process gets as its file of a number.
func Pipe(number int, f *os.File) (string, error) {
	id, err := identity(f)
	return fmt.Sprintf("%d:%d", number, id), err
}

func identity(f *os.File) (uint64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&os.ModeNamedPipe == 0 {
		return 0, errors.New("it is no pipe")
	}
	return uint64(s.Ino), nil
}

// queued is how many events may wait for the launcher. More are lost: training does not wait.
const queued = 256

// Sender sends the events of a worker to its launcher. It does not wait.
type Sender struct {
	file   *os.File
	events chan Event
	quit   chan struct{} // no more events are taken
	done   chan struct{}
	close  func()
}

// NewSender finds the pipe that [Env] names.
func NewSender(value string) (*Sender, error) {
	number, id, _ := strings.Cut(value, ":")
	fd, err := strconv.Atoi(number)
	want, err2 := strconv.ParseUint(id, 10, 64)
	if err != nil || err2 != nil || fd < 3 {
		return nil, errors.Errorf("epl: %s=%q is not what a launcher writes; unset it", Env, value)
	}
	var s syscall.Stat_t
	if err := syscall.Fstat(fd, &s); err != nil || s.Mode&syscall.S_IFMT != syscall.S_IFIFO || uint64(s.Ino) != want {
		return nil, errors.Errorf("epl: %s=%s: the pipe to the launcher is not there; what started this program has closed it", Env, value)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil { // so that Close need not wait for the launcher
		return nil, errors.Errorf("epl: %s: %v", Env, err)
	}
	return newSender(os.NewFile(uintptr(fd), "dashboard")), nil
}

func newSender(f *os.File) *Sender {
	x := &Sender{file: f, events: make(chan Event, queued), quit: make(chan struct{}), done: make(chan struct{})}
	x.close = sync.OnceFunc(func() {
		_ = f.SetWriteDeadline(time.Now().Add(goodbye))
		close(x.quit)
		<-x.done
		f.Close()
	})
	go x.send()
	return x
}

// Put sends an event, if the launcher takes it in time.
func (x *Sender) Put(e Event) {
	select {
	case x.events <- e:
	default:
	}
}

func (x *Sender) send() {
	defer close(x.done)
	for failed := false; ; {
		var e Event
		select {
		case e = <-x.events:
		default:
			select {
			case e = <-x.events:
			case <-x.quit: // and nothing is left
				return
			}
		}
		if text, err := json.Marshal(e); err == nil && !failed {
			_, err := x.file.Write(append(text, '\n'))
			failed = err != nil // the launcher is gone
		}
	}
}

// Close sends what is left, and takes no more.
func (x *Sender) Close() { x.close() }

// mostEvent is how long an event may be, as text.
const mostEvent = 2*mostPage + 1<<20

// Receive reads what a [Sender] sends, to its end. What is no event is skipped.
func Receive(r io.Reader, take func(text []byte)) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		var line []byte
		skipped := false
		for {
			part, more, err := in.ReadLine()
			if err != nil {
				return
			}
			if line = append(line, part...); len(line) > mostEvent {
				line, skipped = nil, true
			}
			if !more {
				break
			}
		}
		if !skipped && json.Valid(line) {
			take(line)
		}
	}
}
