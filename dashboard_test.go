// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/dashboard"
)

// known is what a dashboard knows.
type known struct {
	Curves map[string]struct {
		Steps []int64
		Means []dashboard.Number
	}
	Steps []struct {
		dashboard.Step
		Worker int
	}
	Plan     *dashboard.Plan
	Workers  []dashboard.Worker
	Timeline map[int]*dashboard.Timeline
}

func lookAt(t *testing.T, url, path string) (status int, text string) {
	t.Helper()
	answer, err := http.Get(url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// A dashboard shows what training does: the losses of the loop, the parts of steps, memory against the plan, the plan, and a timeline.
func TestADashboardShowsTheTraining(t *testing.T) {
	for _, name := range []string{"one device", "replicas", "stages"} {
		t.Run(name, func(t *testing.T) {
			saved := savedPlans[name]
			params, devices := map[string]any{"cluster.colocate_split_and_replicate": true}, saved.devices
			maps.Copy(params, saved.params)
			cfg, err := epl.NewConfig(params)
			if err != nil {
				t.Fatal(err)
			}
			env, err := epl.Init(cfg, epl.WithLocalDevices(devices), epl.WithDashboard("127.0.0.1:0"))
			if err != nil {
				t.Fatal(err)
			}
			defer env.Close()
			url := env.Dashboard()
			trainer := train.NewTrainer(env.Backend(), model.NewStore(), saved.model, loss.MeanSquaredError, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
			loop := train.NewLoop(trainer)
			var losses []float32 // by step
			loop.OnStep("losses", 0, func(_ *train.Loop, m []*tensors.Tensor) error {
				losses = append(losses, tensors.ToScalar[float32](m[0]))
				return nil
			})
			m := env.Metrics().Tokens(3)
			loop.OnStep("metrics", 1, m.OnStep)
			if _, err := loop.RunSteps(env.Dataset(savedBatches{}), 6); err != nil {
				t.Fatal(err)
			}
			_, text := lookAt(t, url, "data.json")
			var k known
			if err := json.Unmarshal([]byte(text), &k); err != nil {
				t.Fatal(err, text)
			}
			curve := k.Curves["value/Loss"]
			if len(curve.Steps) < 2 || curve.Steps[0] != 1 {
				t.Fatalf("the loss is known of steps %v", curve.Steps)
			}
			for i, step := range curve.Steps {
				if got, want := float64(curve.Means[i]), float64(losses[step-1]); math.Abs(got-want) > 1e-5*math.Abs(want) {
					t.Errorf("step %d: a loss of %g, want %g", step, got, want)
				}
			}
			for _, name := range []string{"value/Moving Average Loss", "epl/step seconds", "epl/samples per second", "epl/tokens per second", "epl/flops per second", "part/compute", "part/exposed", "part/waiting", "part/data", "part/other"} {
				if len(k.Curves[name].Steps) == 0 {
					t.Errorf("there is no %s", name)
				}
			}
			if samples, tokens := k.Curves["epl/samples per second"].Means[0], k.Curves["epl/tokens per second"].Means[0]; samples <= 0 || float64(tokens/samples) < 2.999 || float64(tokens/samples) > 3.001 {
				t.Error(samples, "samples and", tokens, "tokens a second")
			}
			if len(k.Steps) != 1 || len(k.Steps[0].Devices) != devices {
				t.Fatalf("%+v", k.Steps)
			}
			if k.Plan == nil || len(k.Plan.Devices) != devices || len(k.Plan.Summary) < 3 {
				t.Fatalf("the plan is %+v", k.Plan)
			}
			for i, d := range k.Steps[0].Devices {
				if p := d.Parts; p.Compute <= 0 || p.Exposed < 0 || p.Waiting < 0 || p.Data < 0 || p.Other < 0 {
					t.Errorf("device %d: %+v", i, p)
				}
				if planned := k.Plan.Devices[i].Peak; d.Peak <= 0 || d.Peak > 2*planned || d.Peak < planned/2 { // what is sent lives a while longer
					t.Errorf("device %d had %d bytes, and %d are planned", i, d.Peak, planned)
				}
			}
			if devices > 1 {
				line := k.Timeline[0]
				if line == nil || len(line.Rows) != devices || line.Micro <= 0 {
					t.Fatalf("the timeline is %+v", line)
				}
				for _, r := range line.Rows {
					if !slices.ContainsFunc(r.Bars, func(b dashboard.Bar) bool { return b[0] == dashboard.KindForward }) {
						t.Errorf("device %d has no forward pass", r.Rank)
					}
					for _, b := range r.Bars {
						if b[1] < 0 || b[1]+b[2] > line.Micro+1 || b[3] >= int64(len(line.Names)) {
							t.Errorf("device %d: bar %v of a step of %d µs", r.Rank, b, line.Micro)
						}
					}
				}
			}
			if status, page := lookAt(t, url, "plan"); status != http.StatusOK || !strings.Contains(page, "What runs where") {
				t.Error(status, page)
			}
			if err := env.Close(); err != nil {
				t.Error(err)
			}
			if _, err := http.Get(url); err == nil {
				t.Error("it is still there")
			}
		})
	}
}

func TestADashboardAtAnAddressThatIsNoneIsRefused(t *testing.T) {
	if env, err := epl.Init(nil, epl.WithDashboard("8080")); err == nil || !strings.Contains(err.Error(), "HOST:PORT") {
		t.Errorf("%v", err)
		env.Close()
	}
}

func ExampleWithDashboard() {
	env, err := epl.Init(nil, epl.WithDashboard("127.0.0.1:0"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer env.Close()
	fmt.Println("open", strings.TrimRight(env.Dashboard(), "0123456789/")) // without its port
	// Output: open http://127.0.0.1:
}
