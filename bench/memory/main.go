// Command memory trains one model under a limit of memory, plainly and with each technique that saves memory, and prints what
// EPL predicted, what it metered, what the process really took, and how long a step takes.
//
//	go run ./bench/memory                      # a small transformer on two devices, with 60% of what it needs plainly
//	go run ./bench/memory -layers 24 -limit 0.4
//
// Every row is a process of its own. With -json the table is printed for other programs to read.
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
	{"gradient_checkpoint.type": "auto", "zero.level": "v2", "optimizer.num_apply_group": 4},
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

func main() {
	var m workload
	flag.IntVar(&m.Layers, "layers", 8, "layers of the transformer")
	flag.IntVar(&m.Width, "width", 128, "width of the transformer")
	flag.IntVar(&m.Length, "length", 64, "tokens of a sample")
	flag.IntVar(&m.Batch, "batch", 8, "samples of a micro-batch")
	flag.IntVar(&m.Devices, "devices", 2, "devices")
	flag.IntVar(&m.Steps, "steps", 5, "steps to train")
	limit := flag.Float64("limit", 0.6, "the memory of a device, as a share of what the model needs plainly; 0: not limited")
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
	plain, err := start(job{Workload: m, Settings: map[string]any{}})
	if err != nil {
		fail(err)
	}
	bytes := int64(float64(plain.Predicted) * *limit)
	plain.Settings = "without a limit"
	rows := []Row{plain}
	for _, settings := range techniques {
		row, err := start(job{Workload: m, Settings: settings, Limit: bytes})
		if err != nil {
			fail(err)
		}
		rows = append(rows, row)
	}
	if *asJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(rows); err != nil {
			fail(err)
		}
		return
	}
	fmt.Printf("%d layers, width %d, %d × %d tokens, Adam, %d devices with %s each\n\n", m.Layers, m.Width, m.Batch, m.Length, m.Devices, humanize.Bytes(bytes))
	print(rows)
}

// print writes the table, as Markdown.
func print(rows []Row) {
	fmt.Println("| settings | predicted | of that activations | state and weights | metered | process | ms per step | loss |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		if r.Refused != "" {
			fmt.Printf("| %s | %s | | | %s | | | |\n", r.Settings, known(r.Predicted), r.Refused)
			continue
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %.0f | %.3f |\n", r.Settings, humanize.Bytes(r.Predicted), humanize.Bytes(r.By["activations"]),
			humanize.Bytes(r.By["weights"]+r.By["optimizer state"]), humanize.Bytes(r.Metered), humanize.Bytes(r.Process), r.StepMS, r.Loss)
	}
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
