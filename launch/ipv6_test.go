package launch

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestAJobRunsOnAMachineWithoutIPv4(t *testing.T) {
	const only = "ip link set lo up && ip address flush dev lo && ip address add ::1/128 dev lo && "
	if out, err := exec.Command("unshare", "-rn", "sh", "-c", only+"true").CombinedOutput(); err != nil {
		t.Skipf("a network without IPv4 needs the commands unshare and ip, and leave to use them: %v %s", err, out)
	}
	out, err := exec.Command("unshare", "-rn", "sh", "-c", only+`exec "$0" -test.run '^TestWorkersMeetAtTheLauncher$' -test.v`, os.Args[0]).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS: TestWorkersMeetAtTheLauncher") {
		t.Errorf("%v\n%s", err, out)
	}
}
