// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command planning measures what a plan costs to make. Nothing is trained, there are no weights, and the clusters are only described.
//
//	go run ./bench/planning
//	go run ./bench/planning -rows "M6 24 64x8"
//	go run ./bench/planning -svg docs/planning.svg
//
// Searched rows have models without annotations, for which EPL chooses a way (auto.auto_parallel) on hosts with 8 V100s, and simulates it: BERT-large, and a mixture of
// experts with the dims of M6-T, of up to 10^12 parameters. Annotated rows have a transformer in four stages, each split over k devices, and a mixture of as many experts as a
// stage has devices.
//
// Every row is a process of its own, as "epl plan" and "epl simulate" start it: epl.Init, the model, the plan with its account, its files, its simulation. The
// numbers of a row are the least of some runs: seconds, seconds of CPU, and memory, of the whole process.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/plan"
)

// row is a plan to be made.
type row struct {
	Model   string `json:"model"`
	Layers  int    `json:"layers"`
	Cluster string `json:"cluster"`
	Split   int    `json:"split"` // devices of a stage; 0: nothing is annotated, and EPL chooses

	// What it took, and what came of it.
	seconds, cpu float64
	bytes        int64
	made         *plan.Plan
}

// tables are those of the rows.
var tables = []struct {
	name string
	rows []row
}{
	{"searched, by devices", []row{
		{Model: bert, Layers: 24, Cluster: "1x8xV100-32"}, {Model: bert, Layers: 24, Cluster: "8x8xV100-32"}, {Model: bert, Layers: 24, Cluster: "64x8xV100-32"},
		{Model: m6, Layers: 24, Cluster: "1x8xV100-32"}, {Model: m6, Layers: 24, Cluster: "8x8xV100-32"}, {Model: m6, Layers: 24, Cluster: "64x8xV100-32"},
	}},
	{"searched, by depth", []row{
		{Model: bert, Layers: 12, Cluster: "8x8xV100-32"}, {Model: bert, Layers: 24, Cluster: "8x8xV100-32"}, {Model: bert, Layers: 48, Cluster: "8x8xV100-32"}, {Model: bert, Layers: 96, Cluster: "8x8xV100-32"},
		{Model: m6, Layers: 3, Cluster: "64x8xV100-32"}, {Model: m6, Layers: 6, Cluster: "64x8xV100-32"}, {Model: m6, Layers: 12, Cluster: "64x8xV100-32"}, {Model: m6, Layers: 24, Cluster: "64x8xV100-32"},
	}},
	{"annotated", []row{
		{Model: split, Layers: 24, Cluster: "4x4", Split: 4}, {Model: split, Layers: 24, Cluster: "256x4", Split: 4},
		{Model: split, Layers: 24, Cluster: "4x128", Split: 128}, {Model: split, Layers: 24, Cluster: "256x128", Split: 128},
		{Model: experts, Layers: 24, Cluster: "4x4", Split: 4}, {Model: experts, Layers: 24, Cluster: "256x4", Split: 4},
		{Model: experts, Layers: 24, Cluster: "4x128", Split: 128}, {Model: experts, Layers: 24, Cluster: "256x128", Split: 128},
	}},
}

func main() {
	runs := flag.Int("runs", 3, "how often each plan is made")
	match := flag.String("rows", "", "only rows that match this regular `expression`, such as \"by depth\" or \"BERT.*512\"")
	svg := flag.String("svg", "", "draw what searches cost, by devices and by depth, in this `file`")
	child := flag.String("row", "", "make this plan only (what the command starts itself)")
	profile := flag.String("profile", "", "write a CPU profile of the last row into this `file`")
	flag.Parse()
	if *child != "" {
		if err := planRow(*child, *profile); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := run(os.Stdout, *runs, *match, *svg, *profile); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// planRow makes the plan of a row in this process.
func planRow(text, profile string) error {
	var r row
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return r.plan()
}

func run(out io.Writer, runs int, match, svg, profile string) error {
	only, err := regexp.Compile(match)
	if err != nil {
		return err
	}
	known := map[string]row{} // some are in two tables
	for _, t := range tables {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		head := false
		for i := range t.rows {
			r := &t.rows[i]
			key := fmt.Sprint(r.Model, " ", r.Layers, " ", r.Cluster, " ", r.Split)
			if !only.MatchString(t.name + " " + key) {
				continue
			}
			if !head {
				head = true
				fmt.Fprintf(w, "\n%s\nmodel\tparameters\tlayers\tops\tdevices\tseconds\tof CPU\tmemory\tways\tlooked at\tchosen\n", t.name)
			}
			if old, ok := known[key]; ok {
				*r = old
			} else if err := r.least(runs, profile); err != nil {
				return err
			}
			known[key] = *r
			r.write(w)
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	if svg == "" {
		return nil
	}
	return draw(svg)
}

// devices is how many the cluster has.
func (r *row) devices() (n int) {
	for _, x := range r.made.Cluster.Workers {
		n += len(x)
	}
	return n
}

// write writes the row of a table.
func (r *row) write(w io.Writer) {
	n, looked := 0.0, 0
	for _, v := range r.made.Program.Variables {
		if v.Trainable {
			n += elements(v.Shape)
		}
	}
	for _, x := range r.made.Ways {
		if x.Looked {
			looked++
		}
	}
	chosen := fmt.Sprintf("as annotated, split over %d", r.Split)
	if len(r.made.Ways) > 0 {
		chosen = r.made.Ways[0].String()
	}
	fmt.Fprintf(w, "%s\t%.2g\t%d\t%d\t%d\t%.2f\t%.2f\t%s\t%d\t%d\t%s\n", r.Model, n, r.Layers, r.made.Program.Ops, r.devices(), r.seconds, r.cpu, humanize.Bytes(r.bytes),
		len(r.made.Ways), looked, chosen)
}

// least makes the plan some times.
func (r *row) least(runs int, profile string) error {
	for i := range runs {
		x := *r
		if err := x.measure(profile); err != nil {
			return err
		}
		if i > 0 {
			x.seconds, x.cpu, x.bytes = min(x.seconds, r.seconds), min(x.cpu, r.cpu), min(x.bytes, r.bytes)
		}
		*r = x
	}
	return nil
}

// measure makes the plan in a process of its own.
func (r *row) measure(profile string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "planning")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "plan.txt")
	c := exec.Command(self, "-row", string(text), "-profile", profile)
	variables, err := r.variables()
	if err != nil {
		return err
	}
	c.Env = append(append(os.Environ(), variables...), epl.EnvPlanOut+"="+file)
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	start := time.Now()
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", text, err, out.String())
	}
	r.seconds = time.Since(start).Seconds()
	used := c.ProcessState
	r.cpu = (used.UserTime() + used.SystemTime()).Seconds()
	r.bytes = int64(used.SysUsage().(*syscall.Rusage).Maxrss) << 10
	r.made, err = plan.Read(file + ".json")
	return err
}

// variables ask for the plan, as "epl plan" does, and "epl simulate" if it is known what devices can do.
func (r *row) variables() ([]string, error) {
	said, err := cost.Describe(r.Cluster)
	if err != nil {
		return nil, err
	}
	var devices []string
	said.Each(func(w cost.Workers) { devices = append(devices, strconv.Itoa(w.Devices)) })
	all := []string{cluster.EnvNumWorkers + "=" + strconv.Itoa(len(devices)), cluster.EnvWorkerIndex + "=0", cluster.EnvDevicesPerWorker + "=" + strings.Join(devices, ",")}
	if r.Split > 0 {
		return all, nil
	}
	hardware, err := said.Cluster()
	if err != nil {
		return nil, err
	}
	return append(all, epl.EnvPlanCluster+"="+r.Cluster, epl.EnvPlanSet+"=cluster.device_memory="+config.FormatBytes(hardware.Memory()), epl.EnvSimulate+"=-"), nil
}

// elements is how many a shape such as "float32[2,3]" has.
func elements(shape string) float64 {
	n := 1.0
	_, dims, _ := strings.Cut(strings.TrimSuffix(shape, "]"), "[")
	for dim := range strings.SplitSeq(dims, ",") {
		if x, err := strconv.ParseFloat(dim, 64); err == nil {
			n *= x
		}
	}
	return n
}
