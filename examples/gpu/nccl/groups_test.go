// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

var dump = flag.String("dump", "", "`folder` for modules of 8 replicas, which groups.py runs on JAX")

// eights are plans for 8 devices.
func eights() []try {
	dp := try{processes: 8, name: "data", network: even, stages: []epl.Strategy{epl.Replicate(1, "all")}, replicas: 8, micro: 1}
	zero := dp
	zero.name, zero.params = "zero-v2", map[string]any{"zero.level": "v2"}
	half := dp
	half.name, half.params = "bfloat16", map[string]any{"amp.level": "O1", "amp.dtype": "bfloat16"}
	wire := zero
	wire.name, wire.params = "gradients-float16", map[string]any{"zero.level": "v1", "communication.fp16": true}
	return []try{dp, zero, half, wire,
		{processes: 8, name: "2-replicas-split-4", network: even, stages: []epl.Strategy{epl.Split(4, "all")}, replicas: 2, micro: 1},
		{processes: 8, name: "2-replicas-split-4-padded", network: uneven, stages: []epl.Strategy{epl.Split(4, "all")}, replicas: 2, micro: 1, params: zero.params},
		{processes: 8, name: "experts-8", network: newTranslator(8, 8), replicas: 1, micro: 1},
		{processes: 8, name: "2-stages-split-4", network: even, stages: []epl.Strategy{epl.Split(4, "first"), epl.Split(4, "second")}, apart: true, replicas: 1, micro: 2},
	}
}

// recorded is a module, and what its replicas took and gave in its first run.
type recorded struct {
	Name            string
	Replicas        int
	Inputs, Outputs []tensor
	text            string
	took, gave      [][][]byte // by replica
}

// tensor is the shape of one that every replica has.
type tensor struct {
	DType string
	Dims  []int
}

// Modules of plans for 8 devices have all kinds of collectives. What replicas take and give, computed without XLA, is written beside their text for groups.py.
func TestModulesOf8Replicas(t *testing.T) {
	folder := *dump
	if folder == "" {
		folder = t.TempDir()
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	var kinds string
	for _, x := range eights() {
		t.Run(x.name, func(t *testing.T) {
			all := x.record(t)
			if len(all) == 0 {
				t.Error("no module has collectives")
			}
			for i, r := range all {
				if err := r.write(filepath.Join(folder, fmt.Sprintf("%s-%d", x.name, i))); err != nil {
					t.Error(err)
				}
				kinds += r.text
			}
		})
	}
	for _, op := range []string{"all_reduce", "all_gather", "reduce_scatter", "all_to_all"} {
		if !strings.Contains(kinds, "stablehlo."+op) {
			t.Errorf("no module has %s", op)
		}
	}
}

// record trains one step and returns modules of several devices.
func (x try) record(t *testing.T) (all []*recorded) {
	f := pjrttest.New(t, pjrttest.Options{Devices: x.processes})
	var mu sync.Mutex
	see := func(s *ir.Segment, donate []bool, text string) {
		if s.Mesh == nil || s.Mesh.Devices() == 1 {
			return
		}
		n := s.Mesh.Devices()
		r := &recorded{Name: s.Name, Replicas: n, text: text, took: make([][][]byte, n), gave: make([][][]byte, n)}
		for _, v := range s.Inputs {
			r.Inputs = append(r.Inputs, newTensor(v.Shape))
		}
		for _, v := range s.Outputs {
			r.Outputs = append(r.Outputs, newTensor(v.Shape))
		}
		p := xlatest.Program(t, s, donate)
		run := p.Run
		p.Run = func(device int, args [][]byte) ([][]byte, error) {
			var took [][]byte
			for _, a := range args {
				took = append(took, slices.Clone(a))
			}
			outs, err := run(device, args)
			mu.Lock()
			defer mu.Unlock()
			if i := slices.Index(s.Mesh.Ranks, device); r.took[i] == nil {
				r.took[i] = took
				for _, o := range outs {
					r.gave[i] = append(r.gave[i], slices.Clone(o))
				}
			}
			return outs, err
		}
		f.Program(text, p)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, r)
	}
	exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, xla.Options{Compiling: see}), nil })
	if _, err := x.train(part{Backend: "xla:fake", Timeout: time.Minute}, epl.WithLocalDevices(x.processes)); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r *recorded) bool { return r.took[0] == nil }) // for inputs that are kept, and not needed
}

func newTensor(s shapes.Shape) tensor {
	return tensor{strings.ToLower(s.DType.String()), append([]int{}, s.Dimensions...)}
}

// write writes the text, the shapes and, replica by replica, the bytes of inputs and of outputs.
func (r *recorded) write(path string) error {
	var data bytes.Buffer
	for i := range r.Replicas {
		if len(r.took[i]) != len(r.Inputs) || len(r.gave[i]) != len(r.Outputs) {
			return fmt.Errorf("replica %d took %d and gave %d values of %s", i, len(r.took[i]), len(r.gave[i]), r.Name)
		}
		for _, b := range slices.Concat(r.took[i], r.gave[i]) {
			data.Write(b)
		}
	}
	about, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for end, b := range map[string][]byte{".mlir": []byte(r.text), ".json": about, ".bin": data.Bytes()} {
		if err := os.WriteFile(path+end, b, 0o666); err != nil {
			return err
		}
	}
	return nil
}
