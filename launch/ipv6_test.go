// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestAJobRunsOnAMachineWithoutIPv4(t *testing.T) {
	const only = "ip link set lo up && ip address flush dev lo && ip address add ::1/128 dev lo nodad && "
	if out, err := exec.Command("unshare", "-rn", "sh", "-c", only+"true").CombinedOutput(); err != nil {
		t.Skipf("a network without IPv4 needs the commands unshare and ip, and leave to use them: %v %s", err, out)
	}
	out, err := exec.Command("unshare", "-rn", "sh", "-c", only+`exec "$0" -test.run '^TestWorkersMeetAtTheLauncher$' -test.v`, os.Args[0]).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS: TestWorkersMeetAtTheLauncher") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestHostsMayBeAddressesOfIPv6(t *testing.T) {
	machines, err := hosts("[fd00::1]:2,fd00::2,[fd00::3]", 4)
	if want := []machine{{"fd00::1", 2}, {"fd00::2", 1}, {"fd00::3", 1}}; err != nil || !slices.Equal(machines, want) {
		t.Errorf("%v, %v", machines, err)
	}
	machines, port, err := machineList("[fd00::1]:99,[fd00::2]", 1, 2)
	if want := []machine{{"fd00::1", 1}, {"fd00::2", 1}}; err != nil || port != 99 || !slices.Equal(machines, want) {
		t.Errorf("%v, port %d, %v", machines, port, err)
	}
	var job spec
	if err := meetAt(&job, Options{Port: 99}, "fd00::1"); err != nil || job.Meet != "tcp://[fd00::1]:99" || job.Serve != ":99" {
		t.Errorf("meet at %s, serve at %s, %v", job.Meet, job.Serve, err)
	}
}
