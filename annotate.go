// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"fmt"
	"strings"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

// Strategy says how a part of the model is parallelised: see [Replicate] and [Split]. It is a value: it can be reused,
// and each use opens a TaskGraph of its own.
type Strategy struct {
	s     record.Strategy
	names int
}

// Replicate is data parallelism. With deviceCount 1 the part runs whole on one device of each model replica; with k>1
// the micro-batch is split over k devices. The name is for people.
//
//	epl.With(x, epl.Replicate(1, "encoder"), func() { x = encoder(scope, x) })
func Replicate(deviceCount int, name ...string) Strategy {
	return newStrategy(ir.Replicate, deviceCount, name)
}

// Split is tensor parallelism: the ops of the part are sharded over deviceCount devices.
//
//	epl.With(x, epl.Split(8, "head"), func() { logits = classifier(scope, x) })
func Split(deviceCount int, name ...string) Strategy {
	return newStrategy(ir.Split, deviceCount, name)
}

func newStrategy(kind ir.StrategyKind, devices int, name []string) Strategy {
	return Strategy{s: record.Strategy{Kind: kind, Devices: devices, Name: strings.Join(name, " ")}, names: len(name)}
}

// Shard returns a strategy that also pins how a variable is sharded: along dim, for the variables whose path ends in
// variable. It is for [Split] only.
//
//	head := epl.Split(8, "head").Shard("weights", 1)
func (s Strategy) Shard(variable string, dim int) Strategy {
	s.s.Pins = append(append([]ir.Pin(nil), s.s.Pins...), ir.Pin{Variable: variable, Dim: dim})
	return s
}

// check finds what can be wrong with a strategy whatever the program.
func (s Strategy) check(where string) error {
	kind := "Replicate"
	if s.s.Kind == ir.Split {
		kind = "Split"
	}
	switch {
	case s.s.Devices < 1:
		return errors.Errorf("epl: %s: %s(%d): a TaskGraph needs at least one device", where, kind, s.s.Devices)
	case s.names > 1:
		return errors.Errorf("epl: %s: %s takes at most one name, not %d", where, kind, s.names)
	case s.s.Kind != ir.Split && len(s.s.Pins) > 0:
		return errors.Errorf("epl: %s: Shard(%q, %d) needs Split: under Replicate variables are whole", where, s.s.Pins[0].Variable, s.s.Pins[0].Dim)
	}
	for _, p := range s.s.Pins {
		if p.Variable == "" || p.Dim < 0 {
			return errors.Errorf("epl: %s: Shard(%q, %d) needs the name of a variable and a dim from 0", where, p.Variable, p.Dim)
		}
	}
	if s.s.Kind == ir.Split && where == "WithDefaultStrategy" {
		return errors.Errorf("epl: %s: a split cannot be the default strategy: give it its own scope by epl.With", where)
	}
	return nil
}

// With runs body; the ops it records form a TaskGraph with the given strategy. at is any node of the graph, or the
// graph. Scopes do not nest, but a scope replaces a default strategy for its duration.
//
// Only the forward part is annotated: gradients and updates follow it by themselves. On other backends With just runs
// body.
func With(at graph.GraphProvider, s Strategy, body func()) {
	if body == nil {
		panic(errors.Errorf("epl: With at %s: there is no body: give it the function that builds this part of the model", record.Here()))
	}
	b := builderOf("With", at)
	if b == nil {
		body()
		return
	}
	line := record.Here()
	if err := s.check("With at " + string(line)); err != nil {
		panic(err)
	}
	leave, err := b.Enter(s.s, line)
	if err != nil {
		panic(err)
	}
	defer leave()
	body()
}

// builderOf finds what records the graph, nil on other backends.
func builderOf(what string, at graph.GraphProvider) *record.Builder {
	if at == nil || !at.Graph().IsValid() {
		panic(errors.Errorf("epl: %s at %s: there is no graph to annotate, or it is finalized: give a node of the graph that is being built, or the graph", what, record.Here()))
	}
	b := record.Of(at)
	if b != nil && b.Compiled() {
		panic(errors.Errorf("epl: %s at %s: program %q is compiled already: give a node of the graph that is being built", what, record.Here(), b.Name()))
	}
	return b
}

// SetDefaultStrategy opens a TaskGraph for the ops outside every scope that are recorded from now on. at is any node
// of the graph, or the graph. On other backends it does nothing.
//
//	epl.SetDefaultStrategy(x, epl.Replicate(1))
//	x = stage0(scope, x)
//	epl.SetDefaultStrategy(x, epl.Replicate(1))
//	x = stage1(scope, x)
func SetDefaultStrategy(at graph.GraphProvider, s Strategy) {
	b := builderOf("SetDefaultStrategy", at)
	if b == nil {
		return
	}
	line := record.Here()
	if err := s.check("SetDefaultStrategy at " + string(line)); err != nil {
		panic(err)
	}
	if err := b.SetDefault(s.s, line); err != nil {
		panic(err)
	}
}

// Collection names what [AddToCollection] is told about values.
type Collection string

// The collections.
const (
	// Checkpoints are kept for the backward part when gradient_checkpoint.type is "collection"; what lies between them
	// is computed again.
	Checkpoints Collection = "Checkpoints"

	// GlobalMean and the others say how a result that differs between model replicas and micro-batches is merged: over
	// all of them, or over those of this worker.
	GlobalMean   Collection = "GlobalMean"
	GlobalSum    Collection = "GlobalSum"
	GlobalConcat Collection = "GlobalConcat"
	LocalMean    Collection = "LocalMean"
	LocalSum     Collection = "LocalSum"
	LocalConcat  Collection = "LocalConcat"

	// InstanceWeight is a float scalar w, one per program: the loss, gradients and float metrics of model replicas and
	// micro-batches combine as Σwᵢvᵢ/Σwᵢ. It is for losses with a data-dependent denominator, such as masked ones, where EPL
	// does not find that by itself. What has weight 0 contributes nothing, not even a NaN.
	InstanceWeight Collection = "InstanceWeight"
)

var collections = []Collection{Checkpoints, GlobalMean, GlobalSum, GlobalConcat, LocalMean, LocalSum, LocalConcat, InstanceWeight}

// AddToCollection adds nodes to a collection. On other backends it does nothing.
//
//	epl.AddToCollection(epl.GlobalConcat, predictions)
func AddToCollection(key Collection, nodes ...*graph.Node) {
	for i, n := range nodes {
		if n == nil {
			panic(errors.Errorf("epl: AddToCollection(%s) at %s: node %d is nil", key, record.Here(), i))
		}
		b := builderOf(fmt.Sprintf("AddToCollection(%s)", key), n)
		if b == nil {
			continue
		}
		if err := checkCollection(key, n); err != nil {
			panic(err)
		}
		if err := b.AddToCollection(string(key), key == InstanceWeight, record.ValueOf(n).Value, record.Here()); err != nil {
			panic(err)
		}
	}
}

func checkCollection(key Collection, n *graph.Node) error {
	known := false
	names := make([]string, len(collections))
	for i, c := range collections {
		known = known || c == key
		names[i] = string(c)
	}
	if !known {
		return errors.Errorf("epl: AddToCollection at %s: there is no collection %q; there are %s", record.Here(), key, strings.Join(names, ", "))
	}
	if key == InstanceWeight && (n.Rank() != 0 || !n.DType().IsFloat()) {
		return errors.Errorf("epl: AddToCollection(InstanceWeight) at %s: the weight must be a float scalar, not %s", record.Here(), n.Shape())
	}
	return nil
}
