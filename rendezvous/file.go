// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/wire"
)

// unsafeError is why a file is not believed.
type unsafeError struct{ why string }

func (e *unsafeError) Error() string {
	return fmt.Sprintf("epl: the rendezvous file %s, so another user may have made it or read it; "+
		"remove it, and name a file in a folder of your own in %s", e.why, EnvURL)
}

// maxFile is the size of a rendezvous file, generously.
const maxFile = 64 << 10

// notice is what the worker that serves writes to the file.
type notice struct {
	Machine string   // on which the addresses mean something, if they are local
	Addrs   []string // of the server
	Token   string
}

// serveFile makes the server in this process, and tells the others in a file where it is.
func (at *meeting) serveFile(j Options, where place) error {
	host := where.host
	if host == "" {
		host = wire.Loopback()
	}
	at.security.Token = wire.NewToken()
	if err := at.serve(j, net.JoinHostPort(host, "0")); err != nil {
		return err
	}
	n := notice{Token: at.security.Token, Machine: machineID(), Addrs: []string{at.server.Addr().String()}}
	if !at.local {
		n.Machine, n.Addrs = "", interfaceAddrs(at.server.Addr().(*net.TCPAddr).Port)
	}
	if err := n.publish(where.path, j); err != nil {
		at.close()
		return err
	}
	at.file = where.path
	return nil
}

// interfaceAddrs returns where other machines may reach a port of this one.
func interfaceAddrs(port int) (addrs []string) {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			addrs = append(addrs, net.JoinHostPort(n.IP.String(), fmt.Sprint(port)))
		}
	}
	return append(addrs, net.JoinHostPort(wire.Loopback(), fmt.Sprint(port)))
}

// publish makes the file, whole and all at once, unless it is there and its server is alive.
func (n notice) publish(path string, j Options) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	wrong := func(err error) error {
		return errors.Errorf("epl: worker 0 cannot write the rendezvous file %s: %v; name a file in a folder of your own in %s", path, err, EnvURL)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".epl-") // with mode 0600
	if err != nil {
		return wrong(err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(text)
	if e := temporary.Close(); err == nil {
		err = e
	}
	if err != nil {
		return wrong(err)
	}
	for range 2 {
		if err = os.Link(temporary.Name(), path); !errors.Is(err, os.ErrExist) {
			break
		}
		old, err := readNotice(path)
		switch {
		case errors.Is(err, os.ErrNotExist): // it has gone meanwhile
			continue
		case err != nil: // whatever it is, it is not ours to remove
			return err
		case old.alive(j):
			return errors.Errorf("epl: another job is meeting at %s; give each job a rendezvous file of its own in %s", path, EnvURL)
		}
		j.Logf("epl: the rendezvous file %s was left by a job that is gone; it is replaced", path)
		os.Remove(path)
	}
	if err != nil {
		return wrong(err)
	}
	return nil
}

// alive tells whether the server that a file names is there.
func (n notice) alive(j Options) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	s := j.Security
	s.Token = n.Token
	for _, addr := range n.Addrs {
		conn, err := j.network.dial(ctx, addr, "probe", s, j.Version)
		if err == nil {
			conn.Close()
			return true
		}
		if version := new(wire.VersionError); errors.As(err, &version) {
			return true
		}
	}
	return false
}

// readFile returns where the server is, and takes its token.
func (at *meeting) readFile(where place) ([]string, error) {
	n, err := readNotice(where.path)
	if err != nil {
		return nil, err
	}
	if n.Machine != "" && n.Machine != machineID() {
		return nil, errors.Errorf("epl: the file %s was written on another machine; for several machines use first://host:port, or file://0.0.0.0%s",
			where.path, where.path)
	}
	at.security.Token = n.Token
	return n.Addrs, nil
}

// readNotice reads a file that only this user can have written and read.
func readNotice(path string) (n notice, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return n, errors.WithMessage(err, "epl: cannot open the rendezvous file")
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return n, err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case !info.Mode().IsRegular():
		return n, &unsafeError{path + " is not a plain file"}
	case owner != uint32(os.Geteuid()):
		return n, &unsafeError{fmt.Sprintf("%s belongs to user %d, this is user %d", path, owner, os.Geteuid())}
	case info.Mode().Perm()&0o077 != 0:
		return n, &unsafeError{fmt.Sprintf("%s has mode %v", path, info.Mode())}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	if err != nil || n.Token == "" || len(n.Addrs) == 0 {
		return n, errors.Errorf("epl: %s is there, but is not a rendezvous file; name another one in %s", path, EnvURL)
	}
	return n, nil
}
