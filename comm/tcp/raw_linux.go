// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"io"
	"net"
	"syscall"
	"time"
	"unsafe"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// rawLink is a file descriptor that the Go runtime does not know: no goroutine is parked and woken for it.
type rawLink struct{ fd int }

// rawLinks takes over connections as bare file descriptors. It returns nothing if one of them has none to give.
func rawLinks(conns []net.Conn) (links []link, poll linkPoll, err error) {
	for _, c := range conns {
		if _, ok := c.(syscall.Conn); !ok {
			return nil, nil, nil
		}
	}
	links = make([]link, len(conns))
	for i, c := range conns {
		var fd int
		if fd, err = takeFD(c); err != nil {
			break
		}
		links[i] = &rawLink{fd}
	}
	var p *rawPoll
	if err == nil {
		p, err = newRawPoll()
	}
	if err != nil {
		for i, l := range links {
			if l != nil {
				l.close()
			} else {
				conns[i].Close()
			}
		}
		return nil, nil, err
	}
	return links, p, nil
}

// takeFD closes a connection, and returns a copy of its file descriptor.
func takeFD(c net.Conn) (fd int, err error) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true) // the default; it only makes small messages fast
	}
	var dupErr error
	err = raw.Control(func(old uintptr) {
		new, _, e := syscall.Syscall(syscall.SYS_FCNTL, old, syscall.F_DUPFD_CLOEXEC, 0)
		if fd = int(new); e != 0 {
			dupErr = errors.Wrap(e, "its file descriptor cannot be copied")
		}
	})
	if err == nil {
		err = dupErr
	}
	if err != nil {
		return -1, err
	}
	c.Close()
	return fd, syscall.SetNonblock(fd, true)
}

func (l *rawLink) source() link { return l }
func (l *rawLink) sink() link   { return l }

func (l *rawLink) read(a, b []byte) (int, error) {
	vectors, count := iovecs(a, b)
	if count == 0 {
		return 0, nil
	}
	n, _, e := syscall.RawSyscall(syscall.SYS_READV, uintptr(l.fd), uintptr(unsafe.Pointer(&vectors[0])), uintptr(count))
	switch {
	case e == syscall.EAGAIN || e == syscall.EINTR:
		return 0, nil
	case e != 0:
		return 0, e
	case n == 0:
		return 0, io.EOF
	}
	return int(n), nil
}

func (l *rawLink) write(a, b []byte) (int, error) {
	vectors, count := iovecs(a, b)
	if count == 0 {
		return 0, nil
	}
	m := unix.Msghdr{Iov: &vectors[0]}
	m.SetIovlen(count)
	// Not writev: that one raises SIGPIPE.
	n, _, e := syscall.RawSyscall(syscall.SYS_SENDMSG, uintptr(l.fd), uintptr(unsafe.Pointer(&m)), syscall.MSG_NOSIGNAL)
	switch {
	case e == syscall.EAGAIN || e == syscall.EINTR:
		return 0, nil
	case e != 0:
		return 0, e
	}
	return int(n), nil
}

// iovecs describes two stretches of memory to the system, empty ones left out.
func iovecs(a, b []byte) (vectors [2]unix.Iovec, count int) {
	for _, x := range [...][]byte{a, b} {
		if len(x) > 0 {
			vectors[count].Base = &x[0]
			vectors[count].SetLen(len(x))
			count++
		}
	}
	return vectors, count
}

func (l *rawLink) close() { syscall.Close(l.fd) }

// rawPoll waits for file descriptors, one of which is its own: to be woken.
type rawPoll struct {
	fds  []pollFD
	bell [2]int // a pipe
}

// pollFD is what the system call takes.
type pollFD struct {
	fd              int32
	events, revents int16
}

const (
	pollIn  = 0x1
	pollOut = 0x4
)

func newRawPoll() (*rawPoll, error) {
	p := &rawPoll{}
	if err := syscall.Pipe2(p.bell[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil, errors.Wrap(err, "no pipe can be made")
	}
	return p, nil
}

func (p *rawPoll) wait(all []interest, d time.Duration) {
	p.fds = append(p.fds[:0], pollFD{fd: int32(p.bell[0]), events: pollIn})
	add := func(l link, events int16) {
		if l != nil {
			p.fds = append(p.fds, pollFD{fd: int32(l.(*rawLink).fd), events: events})
		}
	}
	for _, i := range all {
		if i.source == i.sink {
			add(i.source, pollIn|pollOut)
			continue
		}
		add(i.source, pollIn)
		add(i.sink, pollOut)
	}
	t := syscall.NsecToTimespec(int64(max(d, 0)))
	// An error (a signal, at worst) is a wait that was short.
	_, _, _ = syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p.fds[0])), uintptr(len(p.fds)), uintptr(unsafe.Pointer(&t)), 0, 0, 0)
}

func (p *rawPoll) yield() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// wake is for good: nobody waits after a failure.
func (p *rawPoll) wake() { _, _ = syscall.Write(p.bell[1], []byte{1}) }

func (p *rawPoll) close() {
	syscall.Close(p.bell[0])
	syscall.Close(p.bell[1])
}
