package epl_test

import (
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

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
		"epl:devices=0":              `devices is a number from 1, not "0"`,
		"epl:devices=two":            `not "two"`,
		"epl:devices":                `not ""`,
		"epl:2":                      `there is no option "2"; use devices=N`,
		"epl:device=2":               `there is no option "device=2"`,
		"epl:devices=2,":             "",
		"epl:devices=2,,inner=go":    `there is no option ""`,
		"epl:inner=":                 "inner= names no backend",
		"epl:inner=epl:devices=2":    "the inner backend cannot be EPL itself",
		"epl:inner=no-such-backend":  `the program has no backend "no-such-backend"`,
		"epl:inner=go,devices=2":     "devices=2",
		"epl:devices=1,inner=go:hmm": "hmm",
	} {
		b, err := compute.NewWithConfig(config)
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", config, err)
				continue
			}
			b.Finalize()
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "epl: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}
