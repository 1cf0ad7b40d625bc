// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

func TestAnnotationsDoNotNest(t *testing.T) {
	env := newEnv(t, colocated)
	for _, test := range []struct {
		outer, inner epl.Strategy
		says         [2]string // how the message writes the inner and the outer one
	}{
		{epl.Replicate(1), epl.Replicate(1), [2]string{`replicate(1)`, `replicate(1)`}},
		{epl.Replicate(1, "a"), epl.Replicate(1, "b"), [2]string{`replicate(1) "b"`, `replicate(1) "a"`}},
		{epl.Split(1, "a"), epl.Split(2), [2]string{`split(2)`, `split(1) "a"`}},
		{epl.Replicate(1, "a"), epl.Split(2, "b"), [2]string{`split(2) "b"`, `replicate(1) "a"`}},
		{epl.Split(1), epl.Replicate(2), [2]string{`replicate(2)`, `split(1)`}},
	} {
		t.Run(fmt.Sprintf("%s in %s", test.says[0], test.says[1]), func(t *testing.T) {
			var outer, inner string
			err := build(env.Backend(), func(x *Node) *Node {
				outer = line(1)
				epl.With(x, test.outer, func() {
					x = Sin(x)
					inner = line(1)
					epl.With(x, test.inner, func() { x = Cos(x) })
				})
				return x
			})
			want := fmt.Sprintf("epl: %s at %s is inside %s, opened at %s: annotations do not nest; ",
				test.says[0], inner, test.says[1], outer)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got:  %v\nwant: %s…", err, want)
			}
		})
	}
	t.Run("a default in a scope", func(t *testing.T) {
		for says, scope := range map[string]epl.Strategy{
			`replicate(1) "a"`: epl.Replicate(1, "a"),
			`split(1) "b"`:     epl.Split(1, "b"),
		} {
			var outer, inner string
			err := build(env.Backend(), func(x *Node) *Node {
				outer = line(1)
				epl.With(x, scope, func() {
					inner = line(1)
					epl.SetDefaultStrategy(x, epl.Replicate(1))
				})
				return x
			})
			wantError(t, err, fmt.Sprintf("epl: the default strategy is set at %s inside %s, opened at %s: "+
				"annotations do not nest; set the default before or after that scope", inner, says, outer))
		}
	})
	t.Run("through a function of another line", func(t *testing.T) {
		var at string
		layer := func(x *Node) (y *Node) {
			at = line(1)
			epl.With(x, epl.Replicate(1, "layer"), func() { y = Tanh(x) })
			return y
		}
		err := build(env.Backend(), func(x *Node) *Node {
			epl.With(x, epl.Replicate(1, "model"), func() { x = layer(x) })
			return x
		})
		if err == nil || !strings.Contains(err.Error(), `replicate(1) "layer" at `+at) {
			t.Errorf("the message does not name the line %s: %v", at, err)
		}
	})
}

func TestAScopeReplacesADefaultForItsDuration(t *testing.T) {
	dir := dumpDir(t)
	env := newEnv(t, colocated)
	err := build(env.Backend(), func(x *Node) *Node {
		epl.SetDefaultStrategy(x, epl.Replicate(1, "first"))
		x = Sin(x)
		epl.With(x, epl.Replicate(1, "scope"), func() { x = Cos(Tanh(x)) })
		x = Neg(Abs(Sqrt(x)))                                 // the first default is restored
		epl.SetDefaultStrategy(x, epl.Replicate(1, "second")) // a new TaskGraph
		return Exp(Floor(Ceil(Sign(x))))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantOps(t, dir, map[string]int{"first": 4, "scope": 2, "second": 4})
}

// wantOps checks how many ops of the only program that was dumped are in each TaskGraph.
func wantOps(t *testing.T, dir string, want map[string]int) {
	t.Helper()
	programs := recorded(t, dir)
	if len(programs) != 1 {
		t.Fatalf("%d programs were dumped", len(programs))
	}
	got := map[string]int{}
	for _, op := range programs[0].Main.Ops {
		if !op.IsLeaf() {
			got[op.TaskGraph.Title()]++
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("ops by TaskGraph: %v, want %v", got, want)
	}
}

func TestADefaultGivenToInitOpensATaskGraphInEveryProgram(t *testing.T) {
	dir := dumpDir(t)
	env := newEnv(t, colocated, epl.WithDefaultStrategy(epl.Replicate(1, "everywhere")))
	err := build(env.Backend(), func(x *Node) *Node {
		x = Sin(x)
		epl.With(x, epl.Split(1, "head"), func() { x = Cos(x) })
		return x
	})
	if err != nil {
		t.Fatal(err)
	}
	wantOps(t, dir, map[string]int{"everywhere": 1, "head": 1})
}

func TestASplitIsNoDefault(t *testing.T) {
	env := newEnv(t, colocated)
	var at string
	err := build(env.Backend(), func(x *Node) *Node {
		at = line(1)
		epl.SetDefaultStrategy(x, epl.Split(2, "all"))
		return x
	})
	wantError(t, err, `epl: split(2) "all" at `+at+` cannot be the default strategy: give a split its own scope by epl.With`)
}

func TestStrategiesThatMakeNoSenseAreRefusedWhereTheyAreUsed(t *testing.T) {
	env := newEnv(t, nil)
	for _, test := range []struct {
		s    epl.Strategy
		want string
	}{
		{epl.Replicate(0), "Replicate(0): a TaskGraph needs at least one device"},
		{epl.Split(-3), "Split(-3): a TaskGraph needs at least one device"},
		{epl.Strategy{}, "Replicate(0): a TaskGraph needs at least one device"},
		{epl.Replicate(1, "a", "b"), "Replicate takes at most one name, not 2"},
		{epl.Split(1, "a", "b", "c"), "Split takes at most one name, not 3"},
		{epl.Replicate(1).Shard("weights", 0), `Shard("weights", 0) needs Split: under Replicate variables are whole`},
		{epl.Split(1).Shard("", 0), `Shard("", 0) needs the name of a variable and a dim from 0`},
		{epl.Split(1).Shard("weights", 0).Shard("biases", -1), `Shard("biases", -1) needs the name of a variable and a dim from 0`},
	} {
		t.Run(test.want, func(t *testing.T) {
			var at string
			err := build(env.Backend(), func(x *Node) *Node {
				at = line(1)
				epl.With(x, test.s, func() { t.Error("the body runs all the same") })
				return x
			})
			wantError(t, err, "epl: With at "+at+": "+test.want)
			err = build(env.Backend(), func(x *Node) *Node {
				at = line(1)
				epl.SetDefaultStrategy(x, test.s)
				return x
			})
			wantError(t, err, "epl: SetDefaultStrategy at "+at+": "+test.want)
			_, err = epl.Init(nil, epl.WithDefaultStrategy(test.s))
			wantError(t, err, "epl: WithDefaultStrategy: "+test.want)
		})
	}
}

func TestAnnotationsAreRefusedWhileEPLChoosesTheStrategies(t *testing.T) {
	// Init still refuses auto.auto_parallel, so this goes in below it.
	inner, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	backend := record.NewBackend(refusing{inner}, record.Options{AutoParallel: true})
	defer backend.Finalize()
	const why = ": with auto.auto_parallel EPL chooses the strategies; remove the annotation, or turn auto.auto_parallel off"
	var at string
	err = build(backend, func(x *Node) *Node {
		at = line(1)
		epl.With(x, epl.Replicate(1, "a"), func() { x = Sin(x) })
		return x
	})
	wantError(t, err, `epl: replicate(1) "a" at `+at+why)
	err = build(backend, func(x *Node) *Node {
		at = line(1)
		epl.SetDefaultStrategy(x, epl.Replicate(1))
		return x
	})
	wantError(t, err, `epl: replicate(1) at `+at+why)
}

// refusing is an engine that compiles nothing.
type refusing struct{ compute.Backend }

func (refusing) Closed() error { return nil }

func (refusing) Compile(*ir.Program) (compute.Executable, error) {
	return nil, errors.New("it was compiled")
}

func TestTrainingTwoStagesNeedsTwoDevicesOrColocation(t *testing.T) {
	stages := func(_ *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(1, "stage_0"), func() { x = Sin(x) })
		epl.With(x, epl.Replicate(1, "stage_1"), func() { x = Cos(x) })
		return x
	}
	train := func(env *epl.Env, fn func(scope *model.Scope, x *Node) *Node) error {
		return step(trainer(env.Backend(), epl.Optimizer(sgd()), func(scope *model.Scope, x *Node) *Node {
			return fn(scope, layers.Dense(scope, x, true, 1))
		}))
	}
	env := newEnv(t, nil)
	wantError(t, train(env, stages), "epl: a replica needs 2 devices (stage_0: 1, stage_1: 1), but the cluster has 1, "+
		"so 1 is missing; use 2 devices, change a device count, or set cluster.colocate_split_and_replicate "+
		"so that all TaskGraphs of a replica share 1 device")
	if s := explained(t, env); !strings.Contains(s, "epl: a replica needs 2 devices") {
		t.Errorf("Explain does not show the refused program:\n%s", s)
	}
	for _, env := range []*epl.Env{newEnv(t, colocated), newEnv(t, nil, epl.WithLocalDevices(2))} {
		if err := train(env, stages); err != nil {
			t.Error(err)
		}
	}
	head := func(_ *model.Scope, x *Node) *Node {
		epl.With(x, epl.Split(2, "head"), func() { x = Sin(x) })
		return x
	}
	wantError(t, train(newEnv(t, nil), head), "epl: a replica needs 2 devices (head: 2), but the cluster has 1, "+
		"so 1 is missing; use 2 devices, or change a device count")
}

func TestProgramsThatDoNotTrainNeedNoDevicesForTheirTaskGraphs(t *testing.T) {
	if err := build(newEnv(t, nil).Backend(), func(x *Node) *Node {
		epl.With(x, epl.Replicate(1, "stage_0"), func() { x = Sin(x) })
		epl.With(x, epl.Split(2, "head"), func() { x = Cos(x) })
		return x
	}); err != nil {
		t.Error(err)
	}
}

func TestAPanicInAScopeSurfacesAndClosesTheScope(t *testing.T) {
	env := newEnv(t, colocated)
	boom := errors.New("boom")
	failing := func(x *Node) {
		epl.With(x, epl.Replicate(1, "broken"), func() {
			Sin(x)
			panic(boom)
		})
	}
	if err := build(env.Backend(), func(x *Node) *Node { failing(x); return x }); err != boom {
		t.Errorf("the panic surfaces as %v", err)
	}
	dir := dumpDir(t)
	err := build(newEnv(t, colocated).Backend(), func(x *Node) *Node {
		epl.SetDefaultStrategy(x, epl.Replicate(1, "default"))
		func() {
			defer func() { _ = recover() }()
			failing(x)
		}()
		x = Cos(Tanh(x)) // in the default again
		epl.With(x, epl.Replicate(1, "next"), func() { x = Neg(x) })
		return x
	})
	if err != nil {
		t.Fatal(err)
	}
	wantOps(t, dir, map[string]int{"default": 2, "broken": 1, "next": 1})
}

func TestOnOtherBackendsAnnotationsDoNothing(t *testing.T) {
	plain, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Finalize()
	ran := false
	err = build(plain, func(x *Node) *Node {
		epl.SetDefaultStrategy(x, epl.Split(7)) // not even mistakes are looked at
		epl.With(x, epl.Split(2), func() {
			epl.With(x, epl.Replicate(0), func() { ran = true })
		})
		epl.AddToCollection(epl.InstanceWeight, x)
		return x
	})
	if err != nil || !ran {
		t.Errorf("the body ran: %t, the error: %v", ran, err)
	}
}

func TestCollectionsTakeOnlyWhatTheyAreFor(t *testing.T) {
	dir := dumpDir(t)
	env := newEnv(t, nil)
	const all = "Checkpoints, GlobalMean, GlobalSum, GlobalConcat, LocalMean, LocalSum, LocalConcat, InstanceWeight"
	var at string
	for _, test := range []struct {
		add  func(x *Node)
		want string
	}{
		{func(x *Node) {
			at = line(1)
			epl.AddToCollection("GlobalMeen", x)
		}, `epl: AddToCollection at LINE: there is no collection "GlobalMeen"; there are ` + all},
		{func(x *Node) {
			at = line(1)
			epl.AddToCollection(epl.GlobalMean, x, nil)
		}, "epl: AddToCollection(GlobalMean) at LINE: node 1 is nil"},
		{func(x *Node) {
			at = line(1)
			epl.AddToCollection(epl.InstanceWeight, x)
		}, "epl: AddToCollection(InstanceWeight) at LINE: the weight must be a float scalar, not (Float32)[3]"},
		{func(x *Node) {
			at = line(1)
			epl.AddToCollection(epl.InstanceWeight, Const(x.Graph(), int32(1)))
		}, "epl: AddToCollection(InstanceWeight) at LINE: the weight must be a float scalar, not (Int32)"},
	} {
		err := build(env.Backend(), func(x *Node) *Node {
			test.add(x)
			return x
		})
		wantError(t, err, strings.ReplaceAll(test.want, "LINE", at))
	}
	if err := build(env.Backend(), func(x *Node) *Node {
		epl.AddToCollection(epl.GlobalConcat)
		epl.AddToCollection(epl.InstanceWeight, ReduceAllSum(x))
		return x
	}); err != nil {
		t.Error(err)
	}
	programs := recorded(t, dir)
	if n := len(programs[len(programs)-1].Collection("InstanceWeight")); n != 1 {
		t.Errorf("the program has %d weights, want 1", n)
	}
}
