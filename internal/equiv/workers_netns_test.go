// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

// twoHosts makes two network namespaces with a cable between them, or skips the test. They are two workers' host each, as
// far as the network goes. The prefix is that of their addresses, of IPv4 or IPv6.
func twoHosts(t *testing.T, prefix string) (w workers, cut func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need the command ip, of the package iproute2")
	}
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v\n%s", args, err, out)
		}
	}
	names := [2]string{fmt.Sprintf("epltest-%d-a", os.Getpid()), fmt.Sprintf("epltest-%d-b", os.Getpid())}
	address := func(i int) string { return fmt.Sprintf("%s%d", prefix, i+1) }
	six := strings.Contains(prefix, ":")
	for i, name := range names {
		if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil && i == 0 {
			t.Skipf("network namespaces are not to be had here: %s", out)
		} else if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() })
	}
	ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
	for i, name := range names {
		ip("-n", name, "link", "set", "eth0", "up")
		ip("-n", name, "link", "set", "lo", "up")
		if six {
			ip("-n", name, "address", "add", address(i)+"/64", "dev", "eth0", "nodad")
			ip("-n", name, "-4", "address", "flush", "dev", "lo")
		} else {
			ip("-n", name, "address", "add", address(i)+"/24", "dev", "eth0")
		}
	}
	w = workers{num: 4, devices: 1, hosts: "a,a,b,b",
		env: []string{hostVariable + "=" + address(0), rendezvous.EnvToken + "=" + wire.NewToken()},
		on:  func(worker int) []string { return []string{"ip", "netns", "exec", names[worker/2]} }}
	return w, func() { ip("-n", names[1], "link", "set", "eth0", "down") }
}

func TestWorkersOfTwoHostsGiveTheWeightsOfOneDevice(t *testing.T) {
	w, _ := twoHosts(t, "10.77.0.")
	w.agree(t, "same weights")
}

func TestWorkersOfTwoHostsWithoutIPv4GiveTheWeightsOfOneDevice(t *testing.T) {
	w, _ := twoHosts(t, "fd77::")
	w.agree(t, "same weights")
}

func TestACutCableIsReportedSoonAndEndsTheJobAfterTheTimeout(t *testing.T) {
	w, cut := twoHosts(t, "10.77.0.")
	w.env = append(w.env, timeoutVariable+"=7s")
	all := w.start(t, "for ever")
	for _, r := range all {
		r.says(t, time.Minute, "three steps")
	}
	cut()
	all[0].says(t, 5*time.Second, "worker 2 ")
	all[3].says(t, 5*time.Second, "has not been heard of")
	for i, missing := range []string{"2, 3", "2, 3", "0, 1", "0, 1"} {
		all[i].ends(t, 30*time.Second, "ranks "+missing+" did not arrive within 7s")
		// The cut side asks its neighbours directly.
		if words := fmt.Sprintf("rank %d: 5 of", i^1); !strings.Contains(all[i].output(), words) {
			t.Errorf("worker %d does not say %q:\n%s", i, words, all[i].output())
		}
	}
	if !strings.Contains(all[3].output(), "the network may be cut here") {
		t.Errorf("worker 3 does not say that it is cut off:\n%s", all[3].output())
	}
}
