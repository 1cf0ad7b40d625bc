// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command memory trains models under a limit of memory, plainly and with each technique that saves memory, and prints what
// EPL predicted, what it metered, what the process really took, and how long a step takes.
//
//	go run ./bench/memory
//	go run ./bench/memory -devices 4 -limit 0.7 -json
//
// There are two models: one in which activations take most of the memory, and one in which weights and what the optimizer
// keeps for them do. Every row is a process of its own.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/gomlx/compute/support/humanize"
)

// techniques are the rows: settings, on top of the limit.
var techniques = []map[string]any{
	{},
	{"gradient_checkpoint.type": "auto"},
	{"zero.level": "v0"},
	{"zero.level": "v1"},
	{"zero.level": "v2"},
	{"offload.level": "v0"},
	{"amp.level": "O1", "amp.dtype": "bfloat16"},
	{"optimizer.num_apply_group": 4},
	{"gradient_checkpoint.type": "auto", "zero.level": "v2"},
	{"offload.level": "v0", "optimizer.num_apply_group": 24},
}

// Row is what came of one technique.
type Row struct {
	Settings  string           `json:"settings"`
	Predicted int64            `json:"predicted_bytes"` // on the device that needs most
	Metered   int64            `json:"metered_bytes"`   // 0 if it did not fit
	By        map[string]int64 `json:"by"`              // the prediction by use
	Process   int64            `json:"process_bytes"`   // what the process took at most, all devices together
	StepMS    float64          `json:"step_ms"`
	Loss      float64          `json:"loss"`
	Refused   string           `json:"refused,omitempty"`
}

// Table is what came of a model.
type Table struct {
	Title string `json:"title"`
	Rows  []Row  `json:"rows"`
}

// models are what is trained. A device has a share of what they need plainly, which is enough for what each is there to show.
var models = []struct {
	title string
	workload
}{
	{"activations take most", workload{Layers: 6, Width: 64, Length: 64, Batch: 8}},
	{"weights and optimizer state take most", workload{Layers: 4, Width: 256, Length: 16, Batch: 1}},
}

func main() {
	devices := flag.Int("devices", 2, "devices")
	steps := flag.Int("steps", 5, "steps to train")
	limit := flag.Float64("limit", 0.85, "the memory of a device, as a share of what the model needs plainly")
	child := flag.String("row", "", "train this row only (what the command starts itself)")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	if *child != "" {
		var job job
		if err := json.Unmarshal([]byte(*child), &job); err != nil {
			fail(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(job.train()); err != nil {
			fail(err)
		}
		return
	}
	var tables []Table
	for _, m := range models {
		m.Devices, m.Steps = *devices, *steps
		rows, bytes, err := m.measure(*limit)
		if err != nil {
			fail(err)
		}
		t := Table{fmt.Sprintf("%s: a transformer of %d layers, width %d, %d × %d tokens, Adam, %d devices with %s each",
			m.title, m.Layers, m.Width, m.Batch, m.Length, m.Devices, humanize.Bytes(bytes)), rows}
		if tables = append(tables, t); !*asJSON {
			t.print()
		}
	}
	if *asJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(tables); err != nil {
			fail(err)
		}
	}
}

// measure trains every row, with a share of what the model needs plainly.
func (w workload) measure(share float64) (rows []Row, limit int64, err error) {
	plain, err := start(job{Workload: w})
	if err != nil {
		return nil, 0, err
	}
	limit = int64(float64(plain.Predicted) * share)
	plain.Settings = "without a limit"
	rows = append(rows, plain)
	for _, settings := range techniques {
		row, err := start(job{w, settings, limit})
		if err != nil {
			return nil, 0, err
		}
		rows = append(rows, row)
	}
	return rows, limit, nil
}

// print writes the table, as Markdown.
func (t Table) print() {
	fmt.Printf("%s\n\n", t.Title)
	fmt.Println("| settings | predicted | of that activations | weights, optimizer state | metered | process | ms per step | loss |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, r := range t.Rows {
		if r.Refused != "" {
			fmt.Printf("| %s | %s | | | %s | | | |\n", r.Settings, known(r.Predicted), r.Refused)
			continue
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %.0f | %.3f |\n", r.Settings, humanize.Bytes(r.Predicted), humanize.Bytes(r.By["activations"]),
			humanize.Bytes(r.By["weights"]+r.By["optimizer state"]), humanize.Bytes(r.Metered), humanize.Bytes(r.Process), r.StepMS, r.Loss)
	}
	fmt.Println()
}

func known(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return humanize.Bytes(bytes)
}

// start trains a row in a process of its own.
func start(j job) (row Row, err error) {
	text, err := json.Marshal(j)
	if err != nil {
		return row, err
	}
	cmd := exec.Command(os.Args[0], "-row", string(text))
	cmd.Env = append(os.Environ(), "GOGC=25") // what it takes at most is to be near what it needs
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return row, fmt.Errorf("%s: %w", j.text(), err)
	}
	return row, json.Unmarshal(out, &row)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "memory:", strings.TrimPrefix(err.Error(), "epl: "))
	os.Exit(1)
}
