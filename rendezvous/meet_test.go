// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/wire"
)

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(wire.Loopback(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// jobsAt describes all workers of a job without launcher.
func jobsAt(t *testing.T, url string, n int) []Options {
	jobs := make([]Options, n)
	for i := range jobs {
		jobs[i] = Options{URL: url, Security: testSecurity, Workers: n, Index: i, Host: fmt.Sprintf("host%d", i), Timeout: jobtest.Limit, Logf: t.Logf}
	}
	return jobs
}

func TestTheFirstWorkerServes(t *testing.T) {
	jobtest.NoLeak(t)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1", "localhost"}
	if _, err := net.LookupHost(name); err == nil {
		hosts = append(hosts, name)
	}
	for _, host := range hosts {
		t.Run(host, func(t *testing.T) {
			if host == name {
				at, err := listenHost(host)
				t.Logf("serving at %q, %v", at, err)
			}
			members, errs := joinAll(jobtest.Within(t), jobsAt(t, fmt.Sprintf("first://%s:%d", host, freePort(t)), 3))
			for _, err := range errs {
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, err := range onAll(members[:2], func(m *Member) error { return talk(jobtest.Within(t), m, 1-m.Index(), "x") }) {
				if err != nil {
					t.Error(err)
				}
			}
			// The server stays until the last worker has left.
			left := make(chan error)
			go func() { left <- members[0].Leave() }()
			eventually(t, func() bool { return members[1].State(0).Left })
			for _, err := range onAll(members[1:], func(m *Member) error { return talk(jobtest.Within(t), m, 3-m.Index(), "y") }) {
				if err != nil {
					t.Error(err)
				}
			}
			leaveAll(t, members[1:])
			if err := <-left; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheOthersLearnWhyTheServingWorkerFails(t *testing.T) {
	jobtest.NoLeak(t)
	members, errs := joinAll(jobtest.Within(t), jobsAt(t, fmt.Sprintf("first://127.0.0.1:%d", freePort(t)), 3))
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	members[0].Fail(errors.New("out of coffee"))
	members[0].Leave()
	for _, m := range members[1:] {
		wantFailed(t, m, "worker 0 stopped: out of coffee")
		m.Leave()
	}
}

func TestAPortThatIsTakenIsNamed(t *testing.T) {
	jobtest.NoLeak(t)
	l, err := net.Listen("tcp", net.JoinHostPort(wire.Loopback(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Join(jobtest.Within(t), jobsAt(t, "first://"+l.Addr().String(), 2)[0])
	jobtest.WantError(t, err, "cannot listen at "+l.Addr().String(), "EPL_RDZV")
}

func TestWorkersMeetByAFile(t *testing.T) {
	jobtest.NoLeak(t)
	for _, host := range []string{"", "0.0.0.0"} {
		path := filepath.Join(t.TempDir(), "meet")
		jobs := jobsAt(t, "file://"+host+path, 3)
		for i := range jobs {
			jobs[i].Security = wire.Security{} // the file has the token
		}
		members, errs := joinAll(jobtest.Within(t), jobs)
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		// Those who need it have read it.
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
			t.Errorf("there is %v", left)
		}
		for _, err := range onAll(members[1:], func(m *Member) error { return talk(jobtest.Within(t), m, 3-m.Index(), "x") }) {
			if err != nil {
				t.Error(err)
			}
		}
		leaveAll(t, members)
	}
}

// waitForFile waits until worker 0 has written the file.
func waitForFile(t *testing.T, path string) os.FileInfo {
	t.Helper()
	var info os.FileInfo
	eventually(t, func() bool {
		var err error
		info, err = os.Stat(path)
		return err == nil
	})
	return info
}

func TestTheFileIsPrivateAndRemovedWhateverHappens(t *testing.T) {
	jobtest.NoLeak(t)
	path := filepath.Join(t.TempDir(), "meet")
	jobs := jobsAt(t, "file://"+path, 2)
	jobs[0].Timeout = 3 * time.Second
	over := make(chan error)
	go func() {
		_, err := Join(jobtest.Within(t), jobs[0])
		over <- err
	}()
	if mode := waitForFile(t, path).Mode(); mode != 0o600 {
		t.Errorf("mode %v", mode)
	}
	jobtest.WantError(t, <-over, "worker 1 did not come")
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Errorf("there is %v", left)
	}
}

func TestAFileOfAJobThatIsGoneIsReplaced(t *testing.T) {
	jobtest.NoLeak(t)
	path := filepath.Join(t.TempDir(), "meet")
	old := fmt.Sprintf(`{"Machine":%q,"Addrs":["127.0.0.1:%d"],"Token":"old"}`, machineID(), freePort(t))
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	members, errs := joinAll(jobtest.Within(t), jobsAt(t, "file://"+path, 2))
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	leaveAll(t, members)
}

func TestAFileOfAnotherJobIsRespected(t *testing.T) {
	jobtest.NoLeak(t)
	path := filepath.Join(t.TempDir(), "meet")
	jobs := jobsAt(t, "file://"+path, 2)
	first := make(chan *Member)
	go func() {
		m, err := Join(jobtest.Within(t), jobs[0])
		if err != nil {
			t.Error(err)
		}
		first <- m
	}()
	waitForFile(t, path)
	_, err := Join(jobtest.Within(t), jobs[0])
	jobtest.WantError(t, err, "another job is meeting at "+path)
	second, err := Join(jobtest.Within(t), jobs[1])
	if err != nil {
		t.Fatal(err)
	}
	leaveAll(t, []*Member{<-first, second})
}

func TestAFileThatIsNotOursIsNeitherBelievedNorRemoved(t *testing.T) {
	jobtest.NoLeak(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	notice := fmt.Sprintf(`{"Machine":%q,"Addrs":["127.0.0.1:1"],"Token":"x"}`, machineID())
	for _, c := range []struct{ path, want string }{
		{write("open", notice, 0o644), "has mode -rw-r--r--"},
		{write("thesis", "it was a dark and stormy night", 0o600), "is not a rendezvous file"},
		{write("json", "{}", 0o600), "is not a rendezvous file"},
	} {
		before, err := os.ReadFile(c.path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			j := jobsAt(t, "file://"+c.path, 2)[i]
			j.Timeout = time.Second
			_, err := Join(jobtest.Within(t), j)
			jobtest.WantError(t, err, c.path, c.want)
		}
		if after, err := os.ReadFile(c.path); err != nil || string(after) != string(before) {
			t.Errorf("%s is changed: %q, %v", c.path, after, err)
		}
	}
	j := jobsAt(t, "file://"+filepath.Join(dir, "none", "x"), 2)[0]
	_, err := Join(jobtest.Within(t), j)
	jobtest.WantError(t, err, "cannot write the rendezvous file")
	elsewhere := write("elsewhere", strings.Replace(notice, machineID(), "elsewhere", 1), 0o600)
	j = jobsAt(t, "file://"+elsewhere, 2)[1]
	j.Timeout = time.Second
	_, err = Join(jobtest.Within(t), j)
	jobtest.WantError(t, err, "was written on another machine", "file://0.0.0.0"+elsewhere)
}

func TestAddressesAreSeenFromWhereTheWorkerIs(t *testing.T) {
	addr := func(s string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, c := range []struct{ server, peer, want string }{
		{"127.0.0.1:9", "127.0.0.1:5", "127.0.0.1:5"},
		{"10.0.0.1:9", "127.0.0.1:5", "10.0.0.1:5"}, // the peer is where the server is
		{"10.0.0.1:9", "10.0.0.2:5", "10.0.0.2:5"},  // it is not
		{"127.0.0.1:9", "10.0.0.2:5", "10.0.0.2:5"}, // this worker is where the server is
		{"[fd00::1]:9", "127.0.0.1:5", "[fd00::1]:5"},
		{"[fd00::1]:9", "[::1]:5", "[fd00::1]:5"},
		{"[fe80::1%7]:9", "[fe80::2%eth0]:5", "[fe80::2%7]:5"}, // a zone is the name that a machine itself has for a network
	} {
		if got := (&peers{server: addr(c.server)}).seen(c.peer); got != c.want {
			t.Errorf("server %s, peer %s: %s, want %s", c.server, c.peer, got, c.want)
		}
	}
	for _, c := range []struct{ listener, conn, want string }{
		{"127.0.0.1:5", "127.0.0.1:9", "127.0.0.1:5"},
		{"[::]:5", "10.0.0.3:9", "10.0.0.3:5"},
		{"0.0.0.0:5", "[fd00::1]:9", "[fd00::1]:5"},
		{"10.0.0.3:5", "10.0.0.4:9", "10.0.0.3:5"},
	} {
		if got := reachedAt(addr(c.listener), addr(c.conn)); got != c.want {
			t.Errorf("listener %s, connection %s: %s, want %s", c.listener, c.conn, got, c.want)
		}
	}
}
