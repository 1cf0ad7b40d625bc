// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/lstm"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl/internal/equiv"
)

func tinyMLP(batch, width int) problem {
	return problem{mlp(width, width, 1), loss.MeanSquaredError, equiv.Regression(batch, width)}
}

// gpt has four layers, heads of 32, and sequences of 64 tokens.
func gpt(width, batch int) problem {
	const vocabulary, length = 128, 64
	build := func(scope *model.Scope, x *Node) *Node {
		return transformer.New(scope).WithVocabSize(vocabulary).WithEmbedDim(width).WithNumLayers(4).WithNumHeads(width/32).WithHeadDim(32).
			WithMaxPosEmbed(length).WithCausalMask(true).Logits(x, transformer.CallOptions{})
	}
	return problem{build, loss.SparseCategoricalCrossEntropyLogits, equiv.Tokens(batch, length, vocabulary)}
}

// bertLayer is a layer of BERT-base.
func bertLayer(batch int) problem {
	build := func(scope *model.Scope, x *Node) *Node {
		position := ScalarZero(x.Graph(), dtypes.Int32)
		return transformer.New(scope).WithEmbedDim(768).WithNumLayers(1).WithNumHeads(12).WithHeadDim(64).WithCausalMask(false).
			ForwardLayer(scope, 0, x, position, nil, nil, nil, transformer.CallOptions{})
	}
	return problem{build, loss.MeanSquaredError, numbers([]int{batch, 128, 768}, []int{batch, 128, 768})}
}

// numbers makes inputs and labels of these shapes.
func numbers(inputs, labels []int) func(step int) (in, out []*tensors.Tensor) {
	return func(step int) (in, out []*tensors.Tensor) {
		random := func(seed int, dims []int) []*tensors.Tensor {
			flat := make([]float32, shapes.Make(dtypes.Float32, dims...).Size())
			r := rand.New(rand.NewSource(int64(seed)))
			for i := range flat {
				flat[i] = r.Float32()*2 - 1
			}
			return []*tensors.Tensor{tensors.FromFlatDataAndDimensions(flat, dims...)}
		}
		return random(2*step, inputs), random(2*step+1, labels)
	}
}

// convolution is followed by batch normalisation.
func convolution(scope *model.Scope, x *Node, channels, kernel, stride int) *Node {
	x = layers.Convolution(scope.WithInitializer(initializer.HeFn(scope)), x).
		Channels(channels).KernelSize(kernel).Strides(stride).PadSame().UseBias(false).Done()
	return norm.BatchNorm(scope, x, -1).Momentum(0.9).Epsilon(1e-5).Done()
}

// smallResNet is that of examples/resnet.
func smallResNet(batch int) problem {
	const classes = 8
	build := func(scope *model.Scope, x *Node) *Node {
		x = activation.Relu(convolution(scope.In("stem"), x, 8, 3, 1))
		for stage, channels := range []int{8, 16, 32} {
			scope, stride := scope.In("stage_%d", stage), min(stage+1, 2)
			y := activation.Relu(convolution(scope.In("first"), x, channels, 3, stride))
			y = convolution(scope.In("second"), y, channels, 3, 1)
			if stride > 1 {
				x = convolution(scope.In("shortcut"), x, channels, 1, stride)
			}
			x = activation.Relu(Add(x, y))
		}
		return layers.Dense(scope.In("logits"), ReduceMean(x, 1, 2), true, classes)
	}
	images := func(step int) (in, labels []*tensors.Tensor) {
		in, _ = numbers([]int{batch, 32, 32, 3}, []int{1})(step)
		_, labels = equiv.Classes(batch, 2, classes)(step)
		return in, labels
	}
	return problem{build, loss.SparseCategoricalCrossEntropyLogits, images}
}

// bottleneck is a block of the first stage of ResNet-50. A scale of each channel before it lets gradients go through the
// first convolution.
func bottleneck(batch int) problem {
	build := func(scope *model.Scope, x *Node) *Node {
		scale := scope.WithInitializer(initializer.One).VariableWithShape("scale", shapes.Make(dtypes.Float32, 1, 1, 1, 256)).NodeValue(x.Graph())
		x = Mul(x, scale)
		y := activation.Relu(convolution(scope.In("reduce"), x, 64, 1, 1))
		y = activation.Relu(convolution(scope.In("conv"), y, 64, 3, 1))
		return activation.Relu(Add(x, convolution(scope.In("expand"), y, 256, 1, 1)))
	}
	dims := []int{batch, 56, 56, 256}
	return problem{build, loss.MeanSquaredError, numbers(dims, dims)}
}

// lstmOf predicts a number from a sequence.
func lstmOf(batch, steps, width int) problem {
	build := func(scope *model.Scope, x *Node) *Node {
		_, last, _ := lstm.New(scope.In("lstm"), x, width).Done()
		return layers.Dense(scope.In("out"), Squeeze(last, 0), true, 1)
	}
	return problem{build, loss.MeanSquaredError, numbers([]int{batch, steps, width}, []int{batch, 1})}
}

// experts is a layer of eight experts, as in examples/moe: each token goes to two of them, which have room for 24 tokens of a
// sequence.
func experts(batch int) problem {
	const length, width, hidden, count, capacity = 64, 128, 512, 8, 24
	build := func(scope *model.Scope, x *Node) *Node {
		weights := func(name string, inputs int, dims ...int) *Node {
			return scope.WithInitializer(initializer.RandomNormalFn(scope, 1/math.Sqrt(float64(inputs)))).
				VariableWithShape(name, shapes.Make(x.DType(), dims...)).NodeValue(x.Graph())
		}
		probabilities := Softmax(Einsum("gtd,de->gte", x, weights("gate", width, width, count)), -1)
		left, taken, weighted := probabilities, (*Node)(nil), (*Node)(nil)
		for range 2 {
			choice := OneHot(ArgMax(left, -1, dtypes.Int32), count, x.DType())
			left = Sub(left, MulScalar(choice, 2)) // not again
			if taken == nil {
				taken = choice
			} else {
				taken = Add(taken, choice)
			}
		}
		weighted = Mul(probabilities, taken)
		weighted = Div(weighted, ReduceAndKeep(weighted, ReduceSum, -1))
		before := ConvertDType(Sub(CumSum(taken, 1), taken), dtypes.Int32) // at each expert, when a token comes
		place := OneHot(before, capacity, x.DType())                       // nowhere, if there is no room
		dispatch, combine := Mul(place, InsertAxes(taken, -1)), Mul(place, InsertAxes(weighted, -1))

		tokens := Einsum("gtec,gtd->egcd", dispatch, x)
		inside := activation.Relu(Einsum("egcd,edf->egcf", tokens, weights("up", width, count, width, hidden)))
		answers := Einsum("egcf,efd->egcd", inside, weights("down", hidden, count, hidden, width))
		return Add(x, Einsum("gtec,egcd->gtd", combine, answers))
	}
	dims := []int{batch, length, width}
	return problem{build, loss.MeanSquaredError, numbers(dims, dims)}
}

// updated are weights that Adam updates by gradients that are there.
type updated struct {
	name                 string
	count, rows, columns int
}

func (u updated) start(b compute.Backend, _ func(optimizer.Interface) optimizer.Interface) (func() (time.Duration, error), error) {
	apply := func(scope *model.Scope, gradients []*Node) *Node {
		g := gradients[0].Graph()
		for i := range gradients {
			scope.In("%d", i).VariableWithShape("weights", gradients[i].Shape()).NodeValue(g)
		}
		adam().(interface {
			UpdateGraphWithGradients(*model.Scope, []*Node, dtypes.DType)
		}).UpdateGraphWithGradients(scope, gradients, dtypes.Float32)
		return optimizer.GetGlobalStepVar(scope).NodeValue(g)
	}
	exec, err := model.NewExec(b, newStore(), apply)
	if err != nil {
		return nil, err
	}
	var gradients []any
	for i := range u.count {
		in, _ := vectors(u.rows, u.columns)(i)
		t, err := in[0].OnDeviceClone(b, 0)
		if err != nil {
			return nil, err
		}
		gradients = append(gradients, t)
	}
	return func() (time.Duration, error) {
		start := time.Now()
		_, err := exec.Call(gradients...)
		return time.Since(start), err
	}, nil
}
