// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/wire"
)

// place is where the workers meet, as a URL says.
type place struct {
	scheme     string // tcp, first or file
	host, port string
	path       string // of a file
}

func parseURL(text string) (place, error) {
	wrong := func(what string) (place, error) {
		return place{}, errors.Errorf("epl: %s=%q: %s; expected tcp://host:port, first://host:port or file:///path", EnvURL, text, what)
	}
	u, err := url.Parse(text)
	if err != nil {
		return wrong("it is no URL")
	}
	p := place{scheme: u.Scheme, host: u.Hostname(), port: u.Port(), path: u.Path}
	switch p.scheme {
	case "tcp", "first":
		if port, err := strconv.Atoi(p.port); p.host == "" || err != nil || port < 1 || port > 65535 {
			return wrong("it needs a host and a port from 1 to 65535")
		}
		if p.path != "" && p.path != "/" {
			return wrong("it has a path")
		}
	case "file":
		if p.path == "" || p.path == "/" {
			return wrong("it has no path")
		}
		if ip := net.ParseIP(p.host); p.port != "" || p.host != "" && (ip == nil || !ip.IsUnspecified()) {
			return wrong("a file's host is nothing, for workers on one machine, or 0.0.0.0")
		}
	default:
		return wrong("it begins with none of these schemes")
	}
	return p, nil
}

// meeting is a connection to the server, and what belongs to it.
type meeting struct {
	conn     *wire.Conn
	security wire.Security
	server   *Server // if this worker serves
	local    bool    // all workers are on this machine
	file     string  // written by this worker, for the others to find the server
}

// forget removes the file: those who need it have read it.
func (at *meeting) forget() {
	if at.file != "" {
		os.Remove(at.file)
	}
}

func (at *meeting) close() {
	if at.server != nil {
		at.server.Close()
	}
}

// listenAt returns the host to listen at for other workers: the address by which this worker reaches the server, so that
// who reaches the server reaches it.
func (at *meeting) listenAt() string {
	host, _, err := net.SplitHostPort(at.conn.LocalAddr().String())
	if err == nil && isLoopback(host) && !at.local {
		return "" // others come from other machines: everywhere
	}
	return host
}

// reachedAt returns the address of a listener, with the host of a connection if it listens everywhere.
func reachedAt(listener, conn net.Addr) string {
	host, port, err := net.SplitHostPort(listener.String())
	if err != nil {
		return listener.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if local, _, err := net.SplitHostPort(conn.String()); err == nil {
			host = local
		}
	}
	return net.JoinHostPort(host, port)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// meet connects this worker to the server, and if the URL says so makes the server first.
func (j *Options) meet(ctx context.Context) (*meeting, error) {
	where, err := parseURL(j.URL)
	if err != nil {
		return nil, err
	}
	if where.host == "localhost" {
		where.host = wire.Loopback() // whatever the machine's list of hosts says
	}
	if where.scheme != "tcp" && j.Index < 0 {
		return nil, errors.Errorf("epl: %s=%q: the worker with index 0 has to serve, but this worker has no index; set EPL_WORKER_INDEX, or use epl-launch",
			EnvURL, j.URL)
	}
	at := &meeting{security: j.Security, local: isLoopback(where.host)}
	find := func() ([]string, error) { return []string{net.JoinHostPort(where.host, where.port)}, nil }
	serving := j.Index == 0 && where.scheme != "tcp"
	switch {
	case where.scheme == "file":
		at.local = where.host == ""
		if serving {
			err = at.serveFile(*j, where)
		} else {
			find = func() ([]string, error) { return at.readFile(where) }
		}
	case serving:
		host, unknown := listenHost(where.host)
		if unknown != nil {
			j.Logf("epl: worker %d serves the rendezvous %s at all addresses of this machine, because it cannot find its host: %s; "+
				"the others must be able to", j.Index, j.URL, notFound(unknown))
		}
		err = at.serve(*j, net.JoinHostPort(host, where.port))
	}
	if err != nil {
		return nil, err
	}
	if at.server != nil {
		find = func() ([]string, error) { return []string{ownAddress(at.server.Addr())}, nil }
	}
	if err := at.reach(ctx, *j, where, find); err != nil {
		at.forget()
		at.close()
		return nil, err
	}
	return at, nil
}

// serve makes the server in this process.
func (at *meeting) serve(j Options, addr string) (err error) {
	at.server, err = NewServer(addr, ServerOptions{Workers: j.Workers, Security: at.security, Version: j.Version, Beat: j.Beat, Logf: j.Logf})
	if err != nil {
		return errors.Errorf("%v; another job may be using the port: choose another one in %s", err, EnvURL)
	}
	return nil
}

// reach connects to the server, which may not be there yet.
func (at *meeting) reach(ctx context.Context, j Options, where place, find func() ([]string, error)) error {
	patience, cancel := context.WithTimeout(ctx, j.Timeout)
	defer cancel()
	var last error
	named := false
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, time.Second) {
		addrs, err := find()
		if unsafe := new(unsafeError); errors.As(err, &unsafe) {
			return err
		}
		for _, addr := range addrs {
			if at.conn, err = j.network.dial(patience, addr, controlPurpose(j.Index), at.security, j.Version); err == nil {
				return nil
			}
			if final(err) && where.scheme != "file" { // a file may be of an earlier job
				return err
			}
		}
		if patience.Err() == nil || last == nil {
			last = err
		}
		if unknown := new(net.DNSError); errors.As(err, &unknown) && !named {
			named = true // it may pass: names of pods are known when the pods are
			j.Logf("epl: worker %d cannot find the host of the rendezvous %s: %s; it tries again for %s, in case the name comes to be known: "+
				"else correct %s, or use an address", j.Index, j.URL, notFound(unknown), j.Timeout, EnvURL)
		}
		select {
		case <-patience.Done():
			if err := context.Cause(ctx); err != nil {
				return errors.Errorf("epl: worker %d gave up while it looked for the rendezvous at %s (%s): %v", j.Index, j.URL, inner(last.Error()), err)
			}
			return errors.Errorf("epl: worker %d found no rendezvous at %s within %s: %s; see whether %s runs, and can be reached from %s",
				j.Index, j.URL, j.Timeout, inner(last.Error()), where.servedBy(), j.Host)
		case <-time.After(pause):
		}
	}
}

func (p place) servedBy() string {
	if p.scheme == "tcp" {
		return "the launcher"
	}
	return "worker 0"
}

// final tells whether an error of a connection will not pass.
func final(err error) bool {
	var token *wire.TokenError
	var version *wire.VersionError
	return errors.As(err, &token) || errors.As(err, &version)
}

// notFound says why a name has no address.
func notFound(err error) string {
	if unknown := new(net.DNSError); errors.As(err, &unknown) {
		return fmt.Sprintf("%q: %s", unknown.Name, unknown.Err)
	}
	return err.Error()
}

// listenHost returns where to serve that others know by a name: there, if the name is an address of this machine that
// means the same everywhere, else everywhere. An error says that the name has no address.
func listenHost(host string) (string, error) {
	if isLoopback(host) {
		return host, nil
	}
	names, err := net.LookupHost(host)
	if err != nil {
		return "", err
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", nil
	}
	for _, name := range names {
		ip := net.ParseIP(name)
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && ip != nil && n.IP.Equal(ip) && !ip.IsLoopback() {
				return name, nil
			}
		}
	}
	return "", nil
}

// ownAddress returns how this process reaches its own server.
func ownAddress(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok && t.IP.IsUnspecified() {
		return net.JoinHostPort(wire.Loopback(), fmt.Sprint(t.Port))
	}
	return a.String()
}

// network makes connections: TCP's, except in tests.
type network interface {
	dial(ctx context.Context, addr, purpose string, s wire.Security, version string) (*wire.Conn, error)
	listen(host string, s wire.Security, version string, logf func(string, ...any)) (*wire.Listener, error)
}

type tcp struct{}

func (tcp) dial(ctx context.Context, addr, purpose string, s wire.Security, version string) (*wire.Conn, error) {
	return wire.Dial(ctx, "tcp", addr, purpose, s, version)
}

func (tcp) listen(host string, s wire.Security, version string, logf func(string, ...any)) (*wire.Listener, error) {
	return wire.Listen("tcp", net.JoinHostPort(host, "0"), s, version, logf)
}
