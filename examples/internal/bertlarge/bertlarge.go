// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package bertlarge measures a training step of BERT-large: with EPL's mixed precision, where the model is written in float32, and beside it plain
// GoMLX in float32 and in bfloat16, where the model casts by itself and the command has a backend of GoMLX for that.
//
// Each runs in a process of its own, one after the other, from the same weights and on the same batch: XLA reads its settings once,
// and EPL has some of its own. The time of a step is the median, and the ratio is that to plain GoMLX in bfloat16.
package bertlarge

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/procmem"
)

var (
	backend  = flag.String("backend", "xla:cuda", "the GoMLX backend to run on")
	modes    = flag.String("modes", "amp", "what to measure: amp is EPL with mixed precision; epl without; bfloat16 and float32 are plain GoMLX, if the command has it")
	dtype    = flag.String("dtype", "bfloat16", "the type of amp")
	batch    = flag.Int("batch", 32, "batch size")
	length   = flag.Int("length", 512, "tokens of a sample")
	layers   = flag.Int("layers", 24, "layers")
	width    = flag.Int("width", 1024, "width")
	heads    = flag.Int("heads", 16, "attention heads")
	hidden   = flag.Int("hidden", 4096, "width of the layers in between")
	words    = flag.Int("vocabulary", 30522, "vocabulary")
	steps    = flag.Int("steps", 20, "steps that are timed")
	warmup   = flag.Int("warmup", 10, "steps before that")
	fused    = flag.Bool("fused", true, "attention as one op, where the backend has it")
	async    = flag.Bool("async", false, "read the losses when all steps are done, not after each")
	explains = flag.Bool("explain", false, "say what EPL did")
)

// Main is the command.
func Main() {
	flag.Parse()
	all := strings.Split(*modes, ",")
	if len(all) == 1 {
		if err := measure(all[0]); err != nil {
			log.Fatalf("%s: %+v", all[0], err)
		}
		return
	}
	times := map[string]float64{}
	for _, mode := range all {
		ms, err := apart(mode)
		if err != nil {
			log.Fatalf("%s: %v", mode, err)
		}
		times[mode] = ms
	}
	if plain := times["bfloat16"]; plain > 0 && times["amp"] > 0 {
		fmt.Printf("amp takes %.2f of the time of plain GoMLX in bfloat16\n", times["amp"]/plain)
	}
}

// apart measures in a process of its own.
func apart(mode string) (ms float64, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	command := exec.Command(self, append(os.Args[1:], "-modes", mode)...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = io.MultiWriter(os.Stdout, &out), os.Stderr
	if err := command.Run(); err != nil {
		return 0, err
	}
	for line := range strings.Lines(out.String()) {
		if text, ok := strings.CutPrefix(line, mode+" takes "); ok {
			_, err = fmt.Sscan(text, &ms)
		}
	}
	return ms, err
}

// measure trains in one way, and prints the median of the time of a step in milliseconds.
func measure(mode string) error {
	m := &bert{batch: *batch, length: *length, layers: *layers, width: *width, heads: *heads, hidden: *hidden, vocabulary: *words,
		dtype: dtypes.Float32, fused: *fused}
	opt := optimizer.Adam().LearningRate(1e-4).Betas(0.9, 0.999).Epsilon(1e-8).WeightDecay(0.01).DType(dtypes.Float32).Done()
	var on compute.Backend
	switch mode {
	case "amp", "epl":
		params := map[string]any{}
		if mode == "amp" {
			params = map[string]any{"amp.level": "O1", "amp.dtype": *dtype}
		}
		cfg, err := epl.NewConfig(params)
		if err != nil {
			return err
		}
		env, err := epl.Init(cfg, epl.WithInner(*backend))
		if err != nil {
			return err
		}
		on, opt = env.Backend(), epl.Optimizer(opt)
		defer env.Close()
		defer func() {
			for i, d := range env.Stats().Devices {
				fmt.Printf("%s: at most %.2f GiB on the device, predicted for a step %.2f GiB\n", mode, float64(d.Allocated)/(1<<30), float64(env.Predicted().Devices[i].PeakBytes)/(1<<30))
			}
		}()
		if *explains {
			defer func() { _ = env.Explain(os.Stdout) }()
		}
	case "bfloat16", "float32":
		if mode == "bfloat16" {
			m.dtype = dtypes.BFloat16
		}
		var err error
		if on, err = compute.NewWithConfig(*backend); err != nil {
			return err
		}
		defer on.Finalize()
	default:
		return fmt.Errorf("there is no mode %q: write amp, epl, bfloat16 or float32", mode)
	}
	data, err := graph.NewExec(on, func(g *graph.Graph) (tokens, labels *graph.Node) {
		state := graph.RNGStateFromSeedForGraph(g, 42)
		s := shapes.Make(dtypes.Int32, m.batch, m.length)
		state, tokens = graph.RandomIntN(state, m.vocabulary, s)
		_, labels = graph.RandomIntN(state, m.vocabulary, s)
		return tokens, labels
	})
	if err != nil {
		return err
	}
	samples, err := data.Call()
	if err != nil {
		return err
	}
	store := model.NewStore()
	step, err := model.NewExec(on, store, func(scope *model.Scope, tokens, labels *graph.Node) *graph.Node {
		l := m.loss(scope, tokens, labels)
		opt.UpdateGraph(scope, l.Graph(), l)
		return l
	})
	if err != nil {
		return err
	}
	var losses []float32
	var times []time.Duration
	var later []*tensors.Tensor
	read := func() error { // waits for the device
		for _, l := range later {
			losses = append(losses, tensors.ToScalar[float32](l))
			if err := l.FinalizeAll(); err != nil {
				return err
			}
		}
		later = nil
		return nil
	}
	begin := time.Now()
	var host int64
	for i := range *warmup + *steps {
		if i == *warmup {
			if err := read(); err != nil {
				return err
			}
			fmt.Printf("%s: %d steps to warm up took %.1f s\n", mode, i, time.Since(begin).Seconds())
			host, begin = procmem.Peak(), time.Now()
		}
		start := time.Now()
		out, err := step.Call(samples[0], samples[1])
		if err != nil {
			return err
		}
		if later = append(later, out[0]); !*async {
			if err := read(); err != nil {
				return err
			}
		}
		if i >= *warmup {
			times = append(times, time.Since(start))
		}
	}
	if err := read(); err != nil {
		return err
	}
	all := time.Since(begin)
	for v := range store.IterVariables() {
		if err := v.Finalize(); err != nil {
			return err
		}
	}
	slices.Sort(times)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	fmt.Printf("%s: %d steps took %.2f ms each, all together; the peak of the host's memory grew by %d MiB meanwhile\n", mode, *steps, ms(all)/float64(*steps), (procmem.Peak()-host)>>20)
	fmt.Printf("%s takes %.2f ms a step (%.2f to %.2f), batch %d x %d, %d layers of %d; losses %v … %v\n", mode, ms(times[len(times)/2]),
		ms(times[0]), ms(times[len(times)-1]), *batch, *length, *layers, *width, losses[:min(3, len(losses))], losses[len(losses)-1])
	return nil
}
