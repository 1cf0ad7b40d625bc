// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/wire"
)

// withoutIPv4 is set for a test binary that runs where there is no IPv4.
const withoutIPv4 = "EPL_TEST_WITHOUT_IPV4"

// meetAt lets a job of three meet, connect, and leave.
func meetAt(t *testing.T, url string) {
	t.Helper()
	members, errs := joinAll(jobtest.Within(t), jobsAt(t, url, 3))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, err := range onAll(members, func(m *Member) error {
		for other := range members {
			if other != m.Index() {
				if err := talk(jobtest.Within(t), m, other, "x"); err != nil {
					return err
				}
			}
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
	leaveAll(t, members)
}

func TestWorkersMeetByIPv6(t *testing.T) {
	jobtest.NoLeak(t)
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	t.Run("first", func(t *testing.T) { meetAt(t, fmt.Sprintf("first://[::1]:%d", port)) })
	t.Run("tcp", func(t *testing.T) {
		s, err := NewServer("[::1]:0", ServerOptions{Workers: 3, Security: testSecurity})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		meetAt(t, "tcp://"+s.Addr().String())
	})
	t.Run("all addresses", func(t *testing.T) { meetAt(t, "file://[::]"+filepath.Join(t.TempDir(), "job")) })
	if os.Getenv(withoutIPv4) == "" {
		return
	}
	if wire.Loopback() != "::1" {
		t.Fatal("there is IPv4")
	}
	t.Run("file", func(t *testing.T) { meetAt(t, "file://"+filepath.Join(t.TempDir(), "job")) })
	t.Run("first by name", func(t *testing.T) { meetAt(t, fmt.Sprintf("first://localhost:%d", freePort(t))) })
	t.Run("everywhere", func(t *testing.T) {
		s, err := NewServer(":0", ServerOptions{Workers: 3, Security: testSecurity})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		meetAt(t, fmt.Sprintf("tcp://[::1]:%d", s.Addr().(*net.TCPAddr).Port))
	})
}

func TestAMachineWithoutIPv4Works(t *testing.T) {
	const only = "ip link set lo up && ip address flush dev lo && ip address add ::1/128 dev lo nodad && "
	if out, err := exec.Command("unshare", "-rn", "sh", "-c", only+"true").CombinedOutput(); err != nil {
		t.Skipf("a network without IPv4 needs the commands unshare and ip, and leave to use them: %v %s", err, out)
	}
	cmd := exec.Command("unshare", "-rn", "sh", "-c", only+`exec "$0" -test.run '^TestWorkersMeetByIPv6$' -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), withoutIPv4+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "SKIP") || !strings.Contains(string(out), "PASS: TestWorkersMeetByIPv6/everywhere") {
		t.Errorf("%v\n%s", err, out)
	}
}

// unknown is a network in which a name has no address for a while.
type unknown struct {
	tcp
	left *atomic.Int32
}

func (n unknown) dial(ctx context.Context, addr, purpose string, s wire.Security, version string) (*wire.Conn, error) {
	if n.left.Add(-1) >= 0 {
		return nil, &wire.DialError{Addr: addr, Cause: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "node-1", IsNotFound: true}}}
	}
	return n.tcp.dial(ctx, addr, purpose, s, version)
}

func TestAHostThatHasNoAddressIsNamedAtOnceAndMayGetOne(t *testing.T) {
	s := serve(t, ServerOptions{Workers: 1})
	logged := jobtest.NewJournal()
	j := jobAt(s, 0, 1)
	j.Logf = logged.Logf
	j.network = unknown{left: new(atomic.Int32)}
	left := j.network.(unknown).left
	left.Store(1 << 30)
	go func() {
		logged.WaitFor(t, `worker 0 cannot find the host of the rendezvous tcp://`)
		left.Store(0)
	}()
	m, err := Join(jobtest.Within(t), j)
	if err != nil {
		t.Fatal(err)
	}
	m.Leave()
	if logged.Count(`"node-1": no such host`) != 1 || logged.Count(EnvURL) != 1 {
		t.Errorf("logged:\n%s", logged.Text())
	}

	left.Store(1 << 30)
	j.Timeout = jobtest.Limit / 100
	_, err = Join(jobtest.Within(t), j)
	jobtest.WantError(t, err, "no such host", "node-1")
}

func TestTheServingWorkerSaysThatItsNameHasNoAddress(t *testing.T) {
	name := "no-such-host.invalid"
	if _, err := net.LookupHost(name); err == nil {
		t.Skip("here every name has an address")
	}
	logged := jobtest.NewJournal()
	j := jobsAt(t, fmt.Sprintf("first://%s:%d", name, freePort(t)), 1)[0]
	j.Logf = logged.Logf
	m, err := Join(jobtest.Within(t), j)
	if err != nil {
		t.Fatal(err)
	}
	m.Leave()
	if logged.Count("cannot find its host: \""+name) != 1 {
		t.Errorf("logged:\n%s", logged.Text())
	}
}
