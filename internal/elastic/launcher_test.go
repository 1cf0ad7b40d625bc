// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/launch"
)

// launched are options of a launcher.
type launched struct {
	Workers, MinWorkers, MaxRestarts int
	MachineList                      string
	MachineRank, Port                int
	DevicesPerWorker                 int
}

// launcher is a launcher in a process of its own, which can be killed.
func launcher(text string) int {
	var o launched
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	os.Unsetenv(launchVariable)
	status, err := launch.Run(context.Background(), launch.Options{Command: os.Args[:1], Workers: o.Workers, MinWorkers: o.MinWorkers, MaxRestarts: o.MaxRestarts,
		MachineList: o.MachineList, MachineRank: o.MachineRank, Port: o.Port, DevicesPerWorker: o.DevicesPerWorker})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return status
}

// launchApart starts a launcher in a process of its own.
func launchApart(t *testing.T, j job, o launched, hear func(line string)) *exec.Cmd {
	t.Helper()
	work, err := json.Marshal(j.work)
	if err != nil {
		t.Fatal(err)
	}
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(clean(), workVariable+"="+string(work), launchVariable+"="+string(options), tokenVariable)
	out := &output{hear: hear}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// tokenVariable is the secret that launchers of several machines have in common.
const tokenVariable = "EPL_TOKEN=0123456789abcdef0123456789abcdef"

// A launcher on each of two machines, which are one: the second is killed, the first goes on, and takes it in when it is started again.
func TestLaunchersOfSeveralMachines(t *testing.T) {
	const steps = 60
	undisturbed := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 1000}, Options: launch.Options{Workers: 4}}
	if status, said := undisturbed.run(t); status != 0 {
		t.Fatal(said)
	}
	want := weights(t, undisturbed.Dir, steps)

	o := launched{Workers: 4, MinWorkers: 2, MaxRestarts: 3, MachineList: "localhost,localhost", MachineRank: 1, Port: freePort(t)}
	j := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 5, Pause: 2 * pause},
		Options: launch.Options{Workers: 4, MinWorkers: 2, MaxRestarts: 3, MachineList: o.MachineList, Port: o.Port}}
	second := launchApart(t, j, o, nil)
	again := make(chan *exec.Cmd, 1)
	seen := map[string]bool{}
	once := func(line, prefix string) bool {
		if seen[prefix] || !strings.HasPrefix(line, prefix) {
			return false
		}
		seen[prefix] = true
		return true
	}
	j.hear = func(line string) {
		if once(line, "[0] step 12 ") {
			go second.Process.Kill()
		}
		if once(line, "[0] step 20 ") {
			again <- launchApart(t, j, o, nil)
		}
	}
	status, said := j.run(t)
	_ = second.Wait()
	if status != 0 {
		t.Fatalf("status %d:\n%s", status, said)
	}
	for _, pattern := range []string{
		`epl-launch: generation 1, of 4 workers, ended after step 1[0-9]; restart 1 of 3 without a new checkpoint; the next one has 2, and goes on from`,
		`epl-launch: 2 more can run: taken in after the next checkpoint, or failure\n`,
		`epl-launch: generation 2, of 2 workers, ended after step [0-9]+: 4 workers can run; the next one has 4, and goes on from`,
	} {
		if !regexp.MustCompile(pattern).MatchString(said) {
			t.Errorf("nobody said %s in:\n%s", pattern, said)
		}
	}
	same(t, want, weights(t, j.Dir, steps), 1e-5)
	if err := (<-again).Wait(); err != nil {
		t.Errorf("the second launcher does not end as the job does: %v", err)
	}
}

// freePort is one with a free one after it.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		a, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := a.Addr().(*net.TCPAddr).Port
		b, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		a.Close()
		if err == nil {
			b.Close()
			return port
		}
	}
	t.Fatal("there are no two free ports in a row")
	return 0
}

// The launcher of the first machine is killed: the workers end on the other one, too, and the job goes on when it is started again.
func TestTheFirstLauncherMayBeKilled(t *testing.T) {
	const steps = 30
	j := job{work: work{Dir: t.TempDir(), Steps: steps, Every: 3, Pause: pause},
		Options: launch.Options{Workers: 2, MinWorkers: 2, MaxRestarts: 3, MachineList: "localhost,localhost", Port: freePort(t)}}
	o := launched{Workers: 2, MinWorkers: 2, MaxRestarts: 3, MachineList: j.MachineList, Port: j.Port, MachineRank: 1}
	second := launchApart(t, j, o, nil)
	o.MachineRank = 0
	running, stepped := pids{}, make(chan struct{})
	first := launchApart(t, j, o, func(line string) {
		if running.hear(line); strings.HasPrefix(line, "[0] step 7 ") {
			close(stepped)
		}
	})
	<-stepped
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = first.Wait()
	mustEnd(t, running, killed)
	if status, said := j.run(t); status != 0 {
		t.Fatalf("status %d:\n%s", status, said)
	}
	if err := second.Wait(); err != nil {
		t.Errorf("the second launcher does not end as the job does: %v", err)
	}
	weights(t, j.Dir, steps)
}
