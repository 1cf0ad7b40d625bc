// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// again is a program that fails in the first generation, and joins the others in the second.
func again() []string {
	return []string{"sh", "-c", `test $EPL_GENERATION = 2 || exit 3; exec "$0" join`, os.Args[0]}
}

func wentOn(t *testing.T, status int, said string) {
	t.Helper()
	if status != 0 || !strings.Contains(said, "[0] worker 0 of 3 joined\n") || !strings.Contains(said, "[2] worker 2 of 3 joined\n") ||
		!strings.Contains(said, "epl-launch: generation 1, of 3 workers, ended after step 0; restart 1 of 2 without a new checkpoint; the next one has 3") {
		t.Errorf("status %d:\n%s", status, said)
	}
}

func TestAnElasticJobBySSH(t *testing.T) {
	t.Parallel()
	ssh, _ := fakeSSH(t)
	status, stdout, stderr := test(t, Options{Hosts: "127.0.0.1:2,localhost", Workers: 3, MinWorkers: 3, MaxRestarts: 2, Port: freePort(t), SSH: ssh, Command: again()})
	wentOn(t, status, stdout+stderr)
}

func TestAnElasticJobGoesOnWithoutAHostThatCannotBeReached(t *testing.T) {
	t.Parallel()
	ssh, _ := fakeSSH(t)
	text, err := os.ReadFile(ssh[0])
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "shift\n", "test $1 = gone && exit 255\nshift\n", 1))
	if err := os.WriteFile(ssh[0], text, 0o755); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := test(t, Options{Hosts: "gone,127.0.0.1,localhost", Workers: 3, MinWorkers: 2, MaxRestarts: 2, Port: freePort(t), SSH: ssh, Command: []string{"join"}})
	if status != 0 || !strings.Contains(stdout, "[1] worker 1 of 2 joined\n") || !strings.Contains(stderr, "the job goes on without gone\n") {
		t.Errorf("status %d:\n%s%s", status, stdout, stderr)
	}
}

func TestAnElasticJobInAnAllocation(t *testing.T) {
	port := freePort(t)
	of := func(rank int) Options {
		return Options{Workers: 3, MinWorkers: 2, MaxRestarts: 2, Command: again(), Environ: cleanEnviron(fmt.Sprint("JOB_COMPLETION_INDEX=", rank), "EPL_NUM_WORKERS=3",
			"EPL_WORKER_HOSTS=localhost,127.0.0.1,localhost", fmt.Sprintf("EPL_RDZV=first://localhost:%d", port), "EPL_TOKEN="+testToken)}
	}
	statuses, outputs := several(t, of(0), of(1), of(2))
	wentOn(t, statuses[0], outputs[0])
	for _, i := range []int{1, 2} {
		if statuses[i] != 0 || !strings.Contains(outputs[i], fmt.Sprintf("this is machine %d: its workers are looked after", i)) {
			t.Errorf("launcher %d: status %d\n%s", i, statuses[i], outputs[i])
		}
	}
	wrong := of(0)
	wrong.Workers = 4
	if _, err := Run(t.Context(), prepared(wrong)); err == nil || !strings.Contains(err.Error(), "--num_workers 2:4 and --spares 0 contradict Kubernetes, which started 3 workers") {
		t.Error(err)
	}
}

func TestAStrangerDoesNotJoinTheLaunchers(t *testing.T) {
	t.Parallel()
	list := fmt.Sprintf("localhost:%d,localhost", freePort(t))
	of := func(rank int, token string) Options {
		return Options{Workers: 2, MinWorkers: 1, MachineList: list, MachineRank: rank, Environ: cleanEnviron("EPL_TOKEN=" + token),
			Command: []string{"sh", "-c", "echo hello; sleep 3"}} // long enough for the stranger to try
	}
	statuses, outputs := several(t, of(1, strings.Repeat("no", 20)), of(0, testToken), of(1, testToken))
	if statuses[0] != badInput || statuses[1] != 0 || statuses[2] != 0 || !strings.Contains(outputs[1], "[1] hello") {
		t.Errorf("%v:\n%s", statuses, strings.Join(outputs, "\n"))
	}
}
