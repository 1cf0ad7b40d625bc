// Command xla runs EPL over GoMLX's own XLA backend, on a GPU or a CPU, and compares it with that by itself (examples/gpu checks EPL's own runner): the losses and weights of small
// models must be the same, bit for bit, on one device; and two devices, as model replicas or as stages of a pipeline, must
// end where one ends that takes the same batches one after the other, and so must two that split a model. What saves memory must not change where training ends.
//
//	cd examples/xla && go build . && ./xla -backend xla:cuda -run 'split|ZeRO'
//
// It is a module of its own, since XLA needs cgo and a PJRT plugin, and EPL needs neither. Some kernels of CUDA add up in
// an order that changes from run to run; XLA_FLAGS=--xla_gpu_deterministic_ops=true makes plain XLA repeat itself, and so
// makes the comparison fair.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

const steps = 10

func main() {
	backend := flag.String("backend", "xla:cuda", "the GoMLX backend to run on")
	only := flag.String("run", "", "regular expression: the comparisons to make")
	flag.Parse()
	which := regexp.MustCompile(*only)
	failed := 0
	compare := func(name, what string, run func() error) {
		line := fmt.Sprintf("%-24s %-46s", name, what)
		if !which.MatchString(line) {
			return
		}
		verdict := "ok"
		if err := run(); err != nil {
			verdict = err.Error()
			failed++
		}
		fmt.Println(line, verdict)
	}
	for _, m := range equiv.Models() {
		compare(m.Name, "one device, no passes: bits of plain XLA", func() error { return oneDevice(*backend, m, "none", equiv.SameBits) })
		compare(m.Name, "one device, all passes: losses of plain XLA", func() error { return oneDevice(*backend, m, "all", closeLosses) })
		compare(m.Name, "two devices: weights of two micro-batches", func() error { return twoDevices(*backend, m) })
	}
	for _, m := range equiv.Models()[:2] { // the pieces of a step take long to compile
		for _, x := range memory {
			compare(m.Name, fmt.Sprintf("%d devices, %s: weights without", x.devices, x.what), func() error { return saving(*backend, m, x.devices, x.params) })
		}
	}
	for _, m := range equiv.StagedModels() {
		compare(m.Name, "two stages: weights of one", func() error { return stages(*backend, m) })
	}
	for _, m := range equiv.PartedModels() {
		compare(m.Name, "split over two devices: weights of one", func() error { return split(*backend, m) })
	}
	if failed > 0 {
		fmt.Printf("%d comparisons failed\n", failed)
		os.Exit(1)
	}
}

func sgd() optimizer.Interface { return optimizer.StochasticGradientDescent().WithDecay(false) }

func closeLosses(a, b *equiv.Run) error { return equiv.CloseLosses(a, b, 1e-4) }

// oneDevice compares EPL on one device with the backend by itself.
func oneDevice(backend string, m equiv.Model, passes string, compare func(a, b *equiv.Run) error) error {
	plain, err := compute.NewWithConfig(backend)
	if err != nil {
		return err
	}
	want, err := equiv.Train(plain, m, sgd(), steps)
	if err != nil {
		return err
	}
	got, err := onEPL(backend, m, 1, 1, passes)
	if err != nil {
		return err
	}
	return compare(want, got)
}

// twoDevices compares two devices, which share the hardware, with one that takes the same batches one by one.
func twoDevices(backend string, m equiv.Model) error {
	one, err := onEPL(backend, m, 1, 2, "all")
	if err != nil {
		return err
	}
	two, err := onEPL(backend, m, 2, 1, "all")
	if err != nil {
		return err
	}
	return equiv.CloseWeights(one, two, 1e-4)
}

// stages compares a pipeline of two devices, which share the hardware, with one device.
func stages(backend string, s equiv.Staged) error {
	if in, _ := s.Batch(0); len(in) != 1 || s.Loss == nil {
		return nil // it takes more than the other models here
	}
	m := equiv.Model{Name: s.Name, Loss: s.Loss, Batch: s.Batch, Build: func(scope *model.Scope, x *graph.Node) *graph.Node {
		return s.Build(2)(scope, []*graph.Node{x})[0]
	}}
	one, err := onEPL(backend, m, 1, 3, "all")
	if err != nil {
		return err
	}
	two, err := train(backend, m, 2, 3, "all", false, nil)
	if err != nil {
		return err
	}
	return equiv.CloseWeights(one, two, 1e-4)
}

// split compares a model that two devices share, which share the hardware, with one device.
func split(backend string, p equiv.Parted) error {
	if in, _ := p.Batch(0); len(in) != 1 || p.Loss == nil || p.Colocated {
		return nil // it takes more than the other models here
	}
	on := func(k int) (*equiv.Run, error) {
		all := equiv.Strategies(slices.Repeat([]epl.Strategy{epl.Split(k, "all")}, p.Least))
		m := equiv.Model{Name: p.Name, Loss: p.Loss, Batch: p.Batch, Build: func(scope *model.Scope, x *graph.Node) *graph.Node {
			return p.Build(all)(scope, []*graph.Node{x})[0]
		}}
		return onEPL(backend, m, k, 2, "all")
	}
	one, err := on(1)
	if err != nil {
		return err
	}
	two, err := on(2)
	if err != nil {
		return err
	}
	return equiv.CloseWeights(one, two, 5e-3) // small sums are added up in another order
}

// memory is what saves memory, on one device or between two.
var memory = []struct {
	what    string
	devices int
	params  map[string]any
}{
	{"recompute", 1, map[string]any{"gradient_checkpoint.type": "auto"}},
	{"offload", 1, map[string]any{"offload.level": "v0"}},
	{"apply groups", 1, map[string]any{"optimizer.num_apply_group": 3}},
	{"ZeRO v0", 2, map[string]any{"zero.level": "v0"}},
	{"ZeRO v1", 2, map[string]any{"zero.level": "v1"}},
	{"ZeRO v2", 2, map[string]any{"zero.level": "v2"}},
	{"all of it", 2, map[string]any{"zero.level": "v2", "offload.level": "v0", "gradient_checkpoint.type": "auto", "optimizer.num_apply_group": 3}},
}

// saving compares training with what saves memory with training without.
func saving(backend string, m equiv.Model, devices int, params map[string]any) error {
	without, err := train(backend, m, devices, 2, "all", true, nil)
	if err != nil {
		return err
	}
	with, err := train(backend, m, devices, 2, "all", true, params)
	if err != nil {
		return err
	}
	return equiv.CloseWeights(without, with, 1e-3) // XLA rounds elsewhere when it fuses other ops
}

func onEPL(backend string, m equiv.Model, devices, micro int, passes string) (*equiv.Run, error) {
	return train(backend, m, devices, micro, passes, true, nil)
}

func train(backend string, m equiv.Model, devices, micro int, passes string, colocate bool, params map[string]any) (*equiv.Run, error) {
	all := map[string]any{"cluster.colocate_split_and_replicate": colocate, "pipeline.num_micro_batch": micro}
	maps.Copy(all, params)
	cfg, err := epl.NewConfig(all)
	if err != nil {
		return nil, err
	}
	env, err := epl.Init(cfg, epl.WithInner("gomlx-"+backend), epl.WithLocalDevices(devices), epl.WithPasses(passes))
	if err != nil {
		return nil, err
	}
	// The environment stays open: the weights that are compared live on its devices.
	return equiv.TrainOn(env.Backend(), env.Dataset(equiv.Dataset{Batch: m.Batch}), m, epl.Optimizer(sgd()), steps)
}
