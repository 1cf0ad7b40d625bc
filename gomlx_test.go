// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bytes"
	"fmt"
	"log"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

func TestGoMLXMakesEPLWhereTheEnvironmentNamesIt(t *testing.T) {
	for config, devices := range map[string]int{
		"epl": 1, "epl:devices=2": 2, "epl:inner=go": 1, "epl:devices=3,inner=go:ops_sequential,creation_order": 3,
	} {
		t.Run(config, func(t *testing.T) {
			t.Setenv(compute.ConfigEnvVar, config)
			backend, err := compute.New()
			if err != nil {
				t.Fatal(err)
			}
			env := epl.Of(backend)
			if env == nil || env.Backend() != backend {
				t.Fatalf("%v is not of an Env", backend)
			}
			if n := env.Cluster().TotalDevices(); n != devices {
				t.Errorf("%d devices, not %d", n, devices)
			}
			got := MustNewExec(backend, func(x *Node) *Node { return MulScalar(x, 2) }).MustCall1(tensors.FromValue([]float32{1, 2}))
			if v := got.Value().([]float32); v[0] != 2 || v[1] != 4 {
				t.Errorf("twice 1 and 2 are %v", v)
			}
			backend.Finalize()
			if !backend.IsFinalized() {
				t.Error("the backend is not finalized")
			}
		})
	}
}

func TestOfFindsTheEnvOfInitAndNoneForOtherBackends(t *testing.T) {
	env, err := epl.Init(nil, epl.WithInner("go"))
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	if got := epl.Of(env.Backend()); got != env {
		t.Errorf("the Env of its backend is %v", got)
	}
	plain, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Finalize()
	for _, b := range []compute.Backend{plain, nil} {
		if got := epl.Of(b); got != nil {
			t.Errorf("the Env of %v is %v", b, got)
		}
	}
}

func TestATensorWithoutElementsIsMadeFromNoData(t *testing.T) {
	env, err := epl.Init(nil, epl.WithInner("go"))
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	empty, err := tensors.FromRaw(env.Backend(), 0, shapes.Make(dtypes.Float32, 0, 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := empty.Value().([][]float32); len(got) != 0 || !empty.Shape().Equal(shapes.Make(dtypes.Float32, 0, 3)) {
		t.Errorf("it is %v of shape %s", got, empty.Shape())
	}
	if _, err := env.Backend().BufferFromFlatData(0, nil, shapes.Make(dtypes.Float32, 2)); err == nil || !strings.Contains(err.Error(), "epl: a buffer of shape") {
		t.Errorf("a tensor with elements of no data: %v", err)
	}
}

func TestInitDoesNotTakeItselfAsItsInnerBackend(t *testing.T) {
	t.Setenv(compute.ConfigEnvVar, "epl:devices=2")
	_, err := epl.Init(nil)
	if err == nil || !strings.Contains(err.Error(), "epl: GOMLX_BACKEND=epl:devices=2 makes EPL the backend of GoMLX, but this program calls epl.Init") || !strings.Contains(err.Error(), "epl.Of") {
		t.Error(err)
	}
}

func TestOptionsOfTheRegisteredBackendThatAreWrongAreRefused(t *testing.T) {
	for config, want := range map[string]string{
		"epl:devices=0":                    `devices is a number from 1, not "0"`,
		"epl:devices=two":                  `not "two"`,
		"epl:devices":                      `"devices" is no option; options are name=value`,
		"epl:2":                            `"2" is no option`,
		"epl:device=2":                     `there is no option "device"; use devices=N`,
		"epl:devices=2,":                   `not "2,"`,
		"epl:devices=2,,inner=go":          `not "2,"`,
		"epl:devices=2,devices=3":          "devices is given twice",
		"epl:inner=":                       "inner= has no value",
		"epl:zero.level=":                  "zero.level= has no value",
		"epl:zero.level=v9":                `zero.level`,
		"epl:zero.levle=v1":                `unknown configuration key "zero.levle" (did you mean "zero.level"?)`,
		"epl:pipeline.num_micro_batch=4,2": `pipeline.num_micro_batch = "4,2" (set by GOMLX_BACKEND) must be`,
		"epl:inner=epl:devices=2":          "the inner backend cannot be EPL itself",
		"epl:inner=no-such-backend":        `the program has no backend "no-such-backend"`,
		"epl:inner=go,devices=2":           "devices=2",
		"epl:devices=1,inner=go:hmm":       "hmm",
	} {
		_, err := compute.NewWithConfig(config)
		if err == nil || !strings.Contains(err.Error(), "epl: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

func TestOptionsOfTheRegisteredBackendAreSettings(t *testing.T) {
	t.Setenv("EPL_PIPELINE_NUM_MICRO_BATCH", "3") // the option wins
	t.Setenv("EPL_COMMUNICATION_MAX_SPLITS", "7")
	b, err := compute.NewWithConfig("epl:pipeline.num_micro_batch=4,cluster.run_visible_devices=0,2,devices=3,inner=go:ops_sequential,creation_order")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Finalize()
	env := epl.Of(b)
	cfg := env.Config()
	if cfg.Pipeline.NumMicroBatch != 4 || cfg.Cluster.RunVisibleDevices != "0,2" || cfg.Communication.MaxSplits != 7 || env.Cluster().TotalDevices() != 2 {
		t.Errorf("the settings are\n%v\nwith %d devices", cfg, env.Cluster().TotalDevices())
	}
	if from, err := cfg.Source("pipeline.num_micro_batch"); err != nil || from.String() != "GOMLX_BACKEND" {
		t.Errorf("micro-batches come from %v, %v", from, err)
	}
}

// What an unchanged program could ask for, but not get, is refused, or said.
func TestTrainingWithoutTheOptimizerOfEPL(t *testing.T) {
	var out bytes.Buffer
	before := log.Writer()
	log.SetOutput(&out)
	t.Cleanup(func() { log.SetOutput(before) })
	plain, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Finalize()
	losses := func(b compute.Backend) (all []float32, err error) {
		tr := trainer(b, sgd(), nil)
		tr.Store().SetParam(model.ParamInitialSeed, int64(1))
		for batch := range (ones{2, 2, 2}).Iter() {
			metrics, err := tr.TrainStep(batch)
			if err != nil {
				return nil, errors.Cause(err)
			}
			all = append(all, tensors.ToScalar[float32](metrics[0]))
		}
		return all, nil
	}
	want, err := losses(plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, devices := range []int{1, 2} {
		env := newEnv(t, nil, epl.WithLocalDevices(devices), epl.WithInner("go"), epl.WithPasses("none"))
		got, err := losses(env.Backend())
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d devices: losses %v, %v; want %v", devices, got, err, want)
		}
		if said := strings.Contains(out.String(), "trains on 1 of 2 devices, because EPL knows no gradients to reduce: wrap the optimizer in epl.Optimizer"); said != (devices > 1) {
			t.Errorf("%d devices: it logs %q", devices, out.String())
		}
	}
	for key, value := range map[string]any{"pipeline.num_micro_batch": 2, "zero.level": "v0", "amp.level": "O1", "gradient_checkpoint.type": "auto"} {
		env := newEnv(t, map[string]any{key: value}, epl.WithLocalDevices(2))
		if _, err := losses(env.Backend()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s = %v would have no effect: wrap the optimizer in epl.Optimizer", key, value)) {
			t.Errorf("%s = %v: %v", key, value, err)
		}
	}
}

func TestSeveralWorkersDoNotTrainWithoutTheOptimizerOfEPL(t *testing.T) {
	t.Setenv(epl.EnvPlanOut, t.TempDir()+"/plan") // nobody waits for the other worker
	for name, value := range map[string]string{"EPL_NUM_WORKERS": "2", "EPL_WORKER_INDEX": "0", "EPL_DEVICES_PER_WORKER": "1"} {
		t.Setenv(name, value)
	}
	env := newEnv(t, nil)
	err := step(trainer(env.Backend(), sgd(), nil))
	const want = "EPL knows no gradients to reduce, so that each of 2 workers would train a model of its own: wrap the optimizer in epl.Optimizer"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
