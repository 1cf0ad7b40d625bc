// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rootcause

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/launch"
)

// TestInjectedFaultsAreToldAndNamed has faults of EPL_FAULTS happen: each says so, and the job ends with an error that names it, or goes on.
func TestInjectedFaultsAreToldAndNamed(t *testing.T) {
	for _, c := range []struct {
		faults string
		status int    // 0: the job goes on
		fired  string // what the worker says of it
		words  string // a pattern: what the job says at its end
	}{
		{"kill:rank=2,step=3", 137, "fault on rank 2 (worker 2), step 3: the worker is killed", `worker 2 on .* was killed`},
		{"cut:rank=1,to=3,step=2", 1, "fault on rank 1 (worker 1), step 2: the connection is cut", `epl-launch: worker 1 on \S+ and worker 3 on \S+ exited with status 1: the connection between rank 1 of worker 1 \(.*\) and rank 3 of worker 3 \(.*\) broke in `},
		{"corrupt:rank=0,to=2,step=2", 1, "fault on rank 0 (worker 0), step 2: a bit of what it sends is changed", `damaged`},
		{"delay:rank=0,to=1,time=5ms; slow:rank=3,factor=2", 0, "fault on rank 0 (worker 0), step 1: what it sends is delayed", ``},
		{"kill:rank=2,step=3,generation=2", 0, "", ``},
		{"kill:rank=2,step=3000", 0, "fault on rank 2 (worker 2) did not happen: the run had 6 steps and 0 saves", ``},
		{"kill:rank=4,step=3", 1, "", `there is no rank 4; the job has 4 devices, ranks 0 to 3`},
		{"kill:rank=2,stop=3", 1, "", `kill has no key "stop"`},
	} {
		t.Run(c.faults, func(t *testing.T) {
			text, err := json.Marshal(order{Victim: -1, Stages: 1, Timeout: time.Minute, Folder: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			var out, errs timed
			out.more, errs.more = make(chan struct{}, 1), make(chan struct{}, 1)
			status, err := launch.Run(t.Context(), launch.Options{Command: os.Args[:1], Workers: workers, Stdout: &out, Stderr: &errs,
				Environ: append(os.Environ(), orderVariable+"="+string(text), fmt.Sprint(epl.EnvFaults, "=", c.faults))})
			if err != nil {
				t.Fatal(err)
			}
			lines, _ := out.all()
			said, _ := errs.all()
			all := strings.Join(append(lines, said...), "\n")
			if status != c.status || !strings.Contains(all, c.fired) || !regexp.MustCompile(c.words).MatchString(all) {
				t.Errorf("status %d, want %d, %q and %q:\n%s", status, c.status, c.fired, c.words, all)
			}
			if c.fired == "" && strings.Contains(all, "epl: fault on") {
				t.Errorf("something happened:\n%s", all)
			}
			t.Logf("%s", said[max(len(said)-2, 0):])
		})
	}
}
