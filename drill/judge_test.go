// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package drill

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/faults"
)

// kill is a drill, and lines are those of a run in which it went as it should: each with its second.
var (
	kill  = Drill{Name: "kill rank 1", Fault: faults.Fault{Kind: faults.Kill, Rank: 1, Step: 7, Generation: 1}, Ends: true}
	lines = []string{
		"0 [0] step 6: loss 0.5",
		"1 [1] epl: fault on rank 1 (worker 1), step 7: the worker is killed [kill:rank=1,step=7]",
		"2 epl-launch: the job stops because of worker 1; errors of others that only repeat the reason are not shown",
		"3 epl-launch: worker 1 on HOST was killed by signal 9 (killed); it was training, after step 6",
	}
)

// said makes a run of lines.
func said(status int, lines []string) run {
	r := run{status: status, over: true}
	host, _ := os.Hostname()
	for _, l := range lines {
		var second int
		fmt.Sscan(l, &second)
		_, text, _ := strings.Cut(l, " ")
		r.lines = append(r.lines, line{strings.ReplaceAll(text, "HOST", host), time.Unix(int64(second), 0)})
	}
	return r
}

func TestARunIsJudgedByWhatWasSaid(t *testing.T) {
	o := &Options{Command: []string{"train"}, Workers: 2, Notice: 5 * time.Second, Limit: time.Minute}
	change := func(at int, from, to string) []string {
		changed := append([]string(nil), lines...)
		if changed[at] = strings.Replace(changed[at], from, to, 1); changed[at] == lines[at] {
			t.Fatalf("%q is not in %q", from, lines[at])
		}
		return changed
	}
	for name, test := range map[string]struct {
		run  run
		want string // "": nothing is wrong
	}{
		"as it should be":     {said(137, lines), ""},
		"at once":             {said(137, []string{lines[0], "1" + lines[2][1:], lines[1], lines[3]}), ""},
		"long before":         {said(137, []string{lines[0], "0" + lines[2][1:], lines[1], lines[3]}), "nobody says that the job"},
		"it did not happen":   {said(0, lines[:1]), "the fault did not happen"},
		"the job ends well":   {said(0, lines), "ended well although a worker was lost"},
		"it is noticed late":  {said(137, change(2, "2", "9")), "noticed after 8.0 s, not within 5s"},
		"another is blamed":   {said(137, change(2, "worker 1", "worker 0")), "another worker is named"},
		"no machine":          {said(137, change(3, " on HOST", "")), "does not name the worker and its machine"},
		"nothing of its work": {said(137, change(3, "; it was training, after step 6", "")), "what the worker was doing"},
		"nobody notices":      {said(137, lines[:2]), "nobody says that the job"},
	} {
		r := o.judge(kill, test.run, run{})
		if all := strings.Join(r.Wrong, "; "); (all == "") != (test.want == "") || !strings.Contains(all, test.want) {
			t.Errorf("%s: %q, want %q", name, all, test.want)
		}
	}
	hangs := said(137, lines)
	hangs.over = false
	if r := o.judge(kill, hangs, run{}); !strings.Contains(strings.Join(r.Wrong, ";"), "did not end within 1m0s") {
		t.Errorf("%q", r.Wrong)
	}
	stop := Drill{Name: "stop a worker", Fault: faults.Fault{Kind: faults.Stop, Rank: 1, Step: 7, Generation: 1}, Ends: true}
	for silent, want := range map[string]string{
		"4 [0] epl: worker 1 (HOST, pid 5) has not been heard of for 3 s; it may be stopped, or cut off": "",
		"8 [0] epl: worker 1 (HOST, pid 5) has not been heard of for 7 s; it may be stopped, or cut off": "noticed after 7.0 s, not within 5s",
		"4 [1] epl: worker 0 (HOST, pid 4) has not been heard of for 3 s; it may be stopped, or cut off": "nobody says that the worker is silent",
	} {
		r := o.judge(stop, said(1, []string{"1 [1] epl: fault on rank 1 (worker 1), step 7: the worker is stopped [stop:rank=1,step=7]", silent,
			"12 epl-launch: the job stops because of worker 1; errors of others that only repeat the reason are not shown",
			"13 epl-launch: worker 1 on HOST did not answer; it was training, after step 6"}), run{})
		if all := strings.Join(r.Wrong, "; "); (all == "") != (want == "") || !strings.Contains(all, want) {
			t.Errorf("%s: %q, want %q", silent, all, want)
		}
	}
	full := Drill{Name: "disk full", Fault: faults.Fault{Kind: faults.DiskFull, Save: 1}, Says: "was not saved"}
	for text, right := range map[string]bool{"3 [0] epl: the checkpoint of step 10 was not saved": true, "3 [0] all is well": false} {
		r := o.judge(full, said(0, []string{"1 [0] epl: fault on rank 0 (worker 0), step 1, save 1: the disk is full", text}), run{})
		if (len(r.Wrong) == 0) != right || r.Noticed >= 0 {
			t.Errorf("%s: %q", text, r.Wrong)
		}
	}
}

func TestWeightsThatAreMissingAreNotEqual(t *testing.T) {
	if same, text := sameWeights(t.TempDir(), t.TempDir()); same || !strings.Contains(text, "there is no checkpoint in") {
		t.Errorf("%v, %s", same, text)
	}
}

func TestDrillsAreThoseThatMakeSense(t *testing.T) {
	names := func(o Options, calm run) (all []string) {
		for _, d := range o.drills(calm) {
			all = append(all, d.Name+" "+d.Fault.String())
		}
		return all
	}
	alone := strings.Join(names(Options{Workers: 1}, run{steps: 8}), "; ")
	if alone != "kill rank 0 kill:rank=0,step=5; slow device slow:rank=0,step=5,factor=20" {
		t.Errorf("one worker: %s", alone)
	}
	only := strings.Join(names(Options{Workers: 3, Devices: 2, Only: []string{"kill rank 4", "full"}}, run{steps: 8, saves: 3}), "; ")
	if only != "kill rank 4 kill:rank=4,step=5; kill rank 4 in a save kill:rank=4,save=2; disk full disk-full:rank=4,save=2" {
		t.Errorf("some: %s", only)
	}
	if n := len(names(Options{Workers: 2}, run{steps: 8, saves: 3})); n != 13 {
		t.Errorf("%d drills of two workers that save", n)
	}
	for _, d := range (&Options{Workers: 2}).drills(run{steps: 8, saves: 3}) {
		if all, err := faults.Parse(d.Fault.String()); err != nil || all[0] != d.Fault {
			t.Errorf("%s: %v, %v", d.Name, all, err)
		}
	}
}

func TestTheReportIsATableAndWhatIsWrong(t *testing.T) {
	results := []Result{
		{Drill: kill, Noticed: 12 * time.Millisecond, Outcome: "restarted, went on", Weights: "equal"},
		{Drill: Drill{Name: "corrupt what is sent", Fault: faults.Fault{Kind: faults.Corrupt, Rank: 1, Step: 7, Generation: 1}}, Noticed: -1, Outcome: "went on",
			Weights: "1 variable differs; /w in 3 of 12 elements, by 0.5 at most", Wrong: []string{`nobody says "damaged"`, "weights: 1 variable differs; /w in 3 of 12 elements, by 0.5 at most"}, Output: "out/2.log"},
	}
	var b strings.Builder
	right, err := Report(&b, results)
	want, _ := os.ReadFile(filepath.Join("testdata", "report.txt"))
	if err != nil || right || b.String() != string(want) {
		t.Errorf("%v, %v:\n%s", right, err, &b)
	}
	if right, err := Report(&b, results[:1]); !right || err != nil {
		t.Error(right, err)
	}
}
