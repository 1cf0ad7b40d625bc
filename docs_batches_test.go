// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bytes"
	"iter"
	"log"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

// batchMessages provokes what docs/errors.md says about batches: it is logged, and training goes on.
func batchMessages(t *testing.T, message func(name string, err error)) {
	t.Helper()
	logged := func(name string, params map[string]any, fn func(scope *model.Scope, x *Node) *Node, sizes ...int) {
		var out bytes.Buffer
		before, flags := log.Writer(), log.Flags()
		log.SetOutput(&out)
		log.SetFlags(0)
		defer func() {
			log.SetOutput(before)
			log.SetFlags(flags)
		}()
		env := newEnv(t, params, epl.WithLocalDevices(4))
		loop := train.NewLoop(trainer(env.Backend(), epl.Optimizer(sgd()), fn))
		if _, err := loop.RunEpochs(env.Dataset(ones(sizes)), 1); err != nil {
			t.Fatal(err)
		}
		message(name, errors.New(strings.TrimSpace(out.String())))
	}
	logged("small batch", nil, func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(4, "encoder"), func() { x = layers.Dense(scope, x, true, 1) })
		return x
	}, 2)
	logged("odd batch", nil, nil, 5, 5, 5, 5, 5, 5, 2)
}

// ones yields batches of some sizes.
type ones []int

func (ones) Name() string { return "ones" }

func (sizes ones) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for _, n := range sizes {
			batch := func(dim int) []*tensors.Tensor {
				x := make([]float32, n*dim)
				for i := range x {
					x[i] = 1
				}
				return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, n, dim)}
			}
			if !yield(train.Batch{Inputs: batch(2), Labels: batch(1)}, nil) {
				return
			}
		}
	}
}
