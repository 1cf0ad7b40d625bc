// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"errors"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
)

// Passes for mixed precision on XLA change what is kept and how it is rounded, but not what is learned. They are found in GoMLX's own
// transformer, under every plan.
func TestPassesForXLATrainTheSameModel(t *testing.T) {
	const words, off = 4100, "-gelu,-layer-norm,-softmax,-variance,-pad,-concat,-sums"
	m := Model{"transformer", func(scope *model.Scope, x *graph.Node) *graph.Node {
		epl.With(x, epl.Replicate(1, "all"), func() {
			x = transformer.New(scope).WithVocabSize(words).WithEmbedDim(16).WithNumLayers(2).WithNumHeads(2).WithHeadDim(8).WithFFNDim(64).
				WithActivation(activation.TypeGelu).WithMaxPosEmbed(16).WithCausalMask(true).Logits(x, transformer.CallOptions{})
		})
		return x
	}, loss.SparseCategoricalCrossEntropyLogits, Tokens(4, 4, words)}
	for name, c := range map[string]struct {
		devices, micro int
		params         map[string]any
	}{
		"one device":    {1, 1, nil},
		"micro-batches": {1, 2, map[string]any{"gradient_checkpoint.type": "auto"}},
		"ZeRO v2":       {2, 1, map[string]any{"zero.level": "v2"}},
	} {
		for _, half := range halves {
			if half.name == "float16" && c.params != nil {
				continue
			}
			t.Run(name+" in "+half.name, func(t *testing.T) {
				fakeGPUs(t, 2, 0)
				run := func(params map[string]any, list string) (*Run, string) {
					env := newCluster(t, c.devices, c.micro, params, epl.WithInner("xla:fake"), epl.WithPasses(list))
					run, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 3)
					if err != nil {
						t.Fatal(err)
					}
					if run.Store, err = run.Store.Clone(); err != nil {
						t.Fatal(err)
					}
					var text strings.Builder
					if err := errors.Join(env.Explain(&text), env.Close()); err != nil {
						t.Fatal(err)
					}
					return run, text.String()
				}
				exact, _ := run(c.params, "")
				plain, _ := run(inHalf(half.name, c.params), off)
				got, explained := run(inHalf(half.name, c.params), "all")
				if err := CloseLosses(plain, got, half.losses); err != nil {
					t.Error(err)
				}
				for v := range exact.Store.IterVariables() { // what is rounded otherwise is no farther from float32
					if v.Trainable {
						of := func(r *Run) float64 {
							d, _ := distance(numbers(v.MustValue()), numbers(r.Store.GetVariable(v.Path()).MustValue()))
							return d
						}
						_, norm := distance(numbers(v.MustValue()), numbers(v.MustValue()))
						if d, plain := of(got), of(plain); !(d <= 1.5*plain+1e-3*norm+1e-6) {
							t.Errorf("variable %s differs by %g from that of float32, and by %g without these passes; its norm is %g", v.Path(), d, plain, norm)
						}
					}
				}
				for _, note := range []string{"2 GELUs by way of a sigmoid", "gradients of 4 layer norms by one formula", "of exponentials", "gives 4224 columns"} {
					if !strings.Contains(explained, note) {
						t.Errorf("Explain does not say %q", note)
					}
				}
			})
		}
	}
}
