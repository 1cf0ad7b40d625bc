// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/version"
)

// pipe is both ends of a connection to an agent in this process.
type pipe struct {
	io.Reader
	io.WriteCloser
}

// agentOf runs an agent as ssh would.
func agentOf(s *System) io.ReadWriteCloser {
	theirs, mine := io.Pipe()
	answers, back := io.Pipe()
	go func() { _ = back.CloseWithError(Agent(s, theirs, back)) }()
	return pipe{answers, mine}
}

// hostSystem is a machine of a job: it listens at all addresses, or at none.
func hostSystem(t *testing.T, f *fake) *System {
	f.commands["epl-launch --version"] = "epl-launch " + version.Version
	s := f.system(t)
	s.Listen = func(address string) (net.Listener, error) {
		if f.listen != nil {
			return nil, f.listen
		}
		return net.Listen("tcp", address)
	}
	return s
}

// freePort is one that nobody listens at.
func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Two names of this machine, on which it plays two hosts.
var twoHosts = []string{"127.0.0.1", "localhost"}

func TestHostsThatReachEachOtherAreOK(t *testing.T) {
	program := filepath.Join(t.TempDir(), "train")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	all := Job(Options{Hosts: twoHosts, Port: port, Program: []string{program}, Connect: func(string) (io.ReadWriteCloser, error) {
		return agentOf(hostSystem(t, healthy())), nil
	}})
	var checks []string
	for _, f := range all {
		if f.Level != OK {
			t.Errorf("%+v", f)
		}
		checks = append(checks, f.Check)
	}
	slices.Sort(checks)
	want := []string{"clocks", "machine", "machine", "program", "ssh", "ssh", "to 127.0.0.1", "to 127.0.0.1", "to localhost", "to localhost", "version", "version"}
	if !slices.Equal(checks, want) {
		t.Errorf("got %q, want %q", checks, want)
	}
	if says := all[3].Says; !strings.Contains(says, strconv.Itoa(port)) {
		t.Errorf("workers meet at %d: %s", port, says)
	}
}

func TestWhatIsWrongBetweenHostsIsNamed(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*fake)
		err    error
		check  string
		says   string
		fix    string
	}{
		{name: "no login", err: &RemoteError{Login: true, Text: "Permission denied (publickey)"}, check: "ssh", says: "cannot be reached: Permission denied (publickey).", fix: "ssh-copy-id localhost; then this must work without a question: ssh localhost true"},
		{name: "no name", err: &RemoteError{Login: true, Text: "ssh: Could not resolve hostname node9: Name or service not known"}, check: "ssh", says: "Could not resolve hostname", fix: "give localhost an address"},
		{name: "no sshd", err: &RemoteError{Login: true, Text: "ssh: connect to host node1 port 22: Connection refused"}, check: "ssh", says: "Connection refused", fix: "start sshd on localhost"},
		{name: "no epl", err: &RemoteError{Text: "sh: epl: not found"}, check: "ssh", says: "does not run epl: sh: epl: not found.", fix: "go install"},
		{name: "no launcher", change: func(f *fake) { f.commands["epl-launch --version"] = "" }, check: "version", says: "There is no epl-launch", fix: "go install"},
		{name: "another launcher", change: func(f *fake) { f.commands["epl-launch --version"] = "epl-launch 0.0.1" }, check: "version", says: "Its launcher is epl-launch 0.0.1", fix: "go install"},
		{name: "no port", change: func(f *fake) { f.listen = errors.New("permission denied") }, check: "port", says: "It cannot listen", fix: "--port"},
		{name: "a clock", change: func(f *fake) { f.synced = false }, check: "clock", says: "not synchronised", fix: "timedatectl"},
	} {
		all := Job(Options{Hosts: twoHosts, Port: freePort(t), Connect: func(host string) (io.ReadWriteCloser, error) {
			f := healthy()
			if host == "127.0.0.1" {
				return agentOf(hostSystem(t, f)), nil
			}
			if test.err != nil {
				return nil, test.err
			}
			s := hostSystem(t, f)
			test.change(f)
			return agentOf(s), nil
		}})
		if !slices.ContainsFunc(all, func(f Finding) bool {
			return f.Host == "localhost" && f.Check == test.check && f.Level != OK && strings.Contains(f.Says, test.says) && strings.Contains(f.Fix, test.fix)
		}) {
			t.Errorf("%s: %+v", test.name, all)
		}
	}
}

func TestAnotherProgramAtAPortIsNotTakenForAWorker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "SSH-2.0")
			_ = c.Close()
		}
	}()
	from := &peer{host: "a"}
	conn := agentOf(hostSystem(t, healthy()))
	defer conn.Close()
	if hello, err := from.greet(conn); err != nil || hello.Version != version.Version {
		t.Fatal(hello, err)
	}
	from.reach(&peer{host: "127.0.0.1", port: l.Addr().(*net.TCPAddr).Port, word: "word"})
	if len(from.found) != 1 || from.found[0].Level != Problem || !strings.Contains(from.found[0].Says, "another program or machine") {
		t.Errorf("%+v", from.found)
	}
	_ = l.Close()
	from.reach(&peer{host: "127.0.0.1", port: l.Addr().(*net.TCPAddr).Port, word: "word"})
	if len(from.found) != 2 || from.found[1].Level != Problem || !strings.Contains(from.found[1].Says, "cannot connect") {
		t.Errorf("%+v", from.found)
	}
}

func TestClocksThatAreFarApartAreAWarning(t *testing.T) {
	conn := agentOf(healthy().system(t))
	defer conn.Close()
	for ahead, want := range map[int]Level{0: OK, 500: OK, 3000: Warning} {
		a, b := &peer{host: "a", conn: conn}, &peer{host: "b", conn: conn}
		b.skew = -time.Duration(ahead) * time.Millisecond
		all := clocks([]*peer{a, b, {host: "unreached"}})
		if len(all) != 1 || all[0].Level != want || want == OK && !strings.Contains(all[0].Says, "of the 2 hosts that answered") || want == Warning && !strings.Contains(all[0].Says, "The clock of a is 3s ahead of that of b") {
			t.Errorf("%d ms: %+v", ahead, all)
		}
	}
}

func TestProgramsThatDifferAreNamedWithTheirHosts(t *testing.T) {
	for _, test := range []struct {
		hosts map[string][]string
		of    int
		level Level
		says  string
	}{
		{map[string][]string{"1": {"a", "b"}}, 2, OK, "./train is the same file on all hosts."},
		{map[string][]string{"1": {"a", "b"}}, 3, OK, "./train is the same file on the 2 hosts that answered."},
		{map[string][]string{"1": {"a"}, "2": {"b", "c"}}, 3, Problem, "./train differs between a and b, c."},
		{map[string][]string{"1": {"a"}, "": {"b"}}, 2, Problem, "./train is not on b."},
		{map[string][]string{"": {"a", "b"}}, 2, Problem, "./train is on none of them: a, b."},
	} {
		if f := same("./train", test.hosts, test.of); f.Level != test.level || f.Says != test.says {
			t.Errorf("%+v", f)
		}
	}
}

func TestHostsThatDoNotAnswerAreNotSpokenFor(t *testing.T) {
	all := Job(Options{Hosts: twoHosts, Program: []string{"train"}, Connect: func(string) (io.ReadWriteCloser, error) {
		return nil, &RemoteError{Login: true, Text: "Connection refused"}
	}})
	if len(all) != 2 || all[0].Check != "ssh" || all[1].Check != "ssh" {
		t.Errorf("neither host answers, and yet: %+v", all)
	}
}
