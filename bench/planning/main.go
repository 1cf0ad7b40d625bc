// Command planning measures what a plan costs to make, for clusters of different sizes: a transformer in four stages, each
// split over k devices, and a mixture of as many experts as a stage has devices. Nothing is trained.
//
//	go run ./bench/planning
//
// Every row is a process of its own: epl.Init with a cluster that is only described, up to the plan with its account. The
// numbers of a row are the least of some runs: seconds from the recorded program to the plan, and the memory of the process.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/internal/procmem"
)

// row is a plan to be made.
type row struct {
	Model    string `json:"model"`
	Devices  int    `json:"devices"` // of a stage
	Replicas int    `json:"replicas"`
	// Seconds and Bytes are what it took.
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
}

func main() {
	runs := flag.Int("runs", 3, "how often each plan is made")
	layers := flag.Int("layers", 24, "layers of the models")
	child := flag.String("row", "", "make this plan only (what the command starts itself)")
	flag.Parse()
	if err := run(*runs, *layers, *child); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(runs, layers int, child string) error {
	if child != "" {
		var r row
		if err := json.Unmarshal([]byte(child), &r); err != nil {
			return err
		}
		if err := r.plan(layers); err != nil {
			return err
		}
		r.Bytes = procmem.Peak()
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "model\tdevices of a stage\treplicas\tdevices\tseconds\tmemory\t")
	for _, model := range []string{"transformer", "experts"} {
		for _, devices := range []int{4, 128} {
			for _, replicas := range []int{1, 64} {
				best := row{Model: model, Devices: devices, Replicas: replicas}
				for i := range runs {
					got, err := best.measure(layers)
					if err != nil {
						return err
					}
					if i == 0 || got.Seconds < best.Seconds {
						best.Seconds = got.Seconds
					}
					if i == 0 || got.Bytes < best.Bytes {
						best.Bytes = got.Bytes
					}
				}
				fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.2f\t%s\t\n", model, devices, replicas, stages*devices*replicas, best.Seconds, humanize.Bytes(best.Bytes))
			}
		}
	}
	return w.Flush()
}

// measure makes the plan in a process of its own.
func (r row) measure(layers int) (got row, err error) {
	text, err := json.Marshal(row{Model: r.Model, Devices: r.Devices, Replicas: r.Replicas})
	if err != nil {
		return got, err
	}
	self, err := os.Executable()
	if err != nil {
		return got, err
	}
	dir, err := os.MkdirTemp("", "planning")
	if err != nil {
		return got, err
	}
	defer os.RemoveAll(dir)
	c := exec.Command(self, "-layers", fmt.Sprint(layers), "-row", string(text))
	// A worker has the devices of a stage, as by epl plan --cluster.
	c.Env = append(os.Environ(), "EPL_PLAN_OUT="+filepath.Join(dir, "plan.txt"), fmt.Sprintf("EPL_NUM_WORKERS=%d", stages*r.Replicas),
		"EPL_WORKER_INDEX=0", fmt.Sprintf("EPL_DEVICES_PER_WORKER=%d", r.Devices))
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return got, fmt.Errorf("%s: %w: %s", text, err, errs.String())
	}
	return got, json.Unmarshal([]byte(out.String()), &got)
}
