// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package residual has the residual networks of the examples ("Deep Residual Learning for Image Recognition", He et al.
// 2015), in plain GoMLX.
package residual

import (
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
)

// Network describes one of them.
type Network struct {
	Size       int   // height and width of its images
	Width      int   // channels of the first stage; each further stage has twice as many, of half the size
	Blocks     []int // residual blocks of each stage
	Bottleneck bool  // blocks of 1×1, 3×3 and 1×1 convolutions, the last with four times the channels; else two of 3×3
	Batch      int   // samples of a batch, if the command line does not say it
}

// Networks are those that a command line can name.
var Networks = map[string]Network{
	"resnet50": {Size: 224, Width: 64, Blocks: []int{3, 4, 6, 3}, Bottleneck: true, Batch: 32},
	"small":    {Size: 32, Width: 8, Blocks: []int{1, 1, 1}, Batch: 16},
}

// Features builds the network up to what a classifier decides by. Images are [batch, Size, Size, 3], features are
// [batch, channels].
func (n Network) Features(scope *model.Scope, images *Node) *Node {
	x := n.stem(scope.In("stem"), images)
	for stage, blocks := range n.Blocks {
		for block := range blocks {
			stride := 1
			if stage > 0 && block == 0 {
				stride = 2
			}
			x = n.block(scope.In("stage_%d_block_%d", stage, block), x, n.Width<<stage, stride)
		}
	}
	return ReduceMean(x, 1, 2)
}

// stem makes the first features. That of large images reduces them to a quarter of their size.
func (n Network) stem(scope *model.Scope, x *Node) *Node {
	if n.Size < 64 {
		return activation.Relu(convolution(scope, x, n.Width, 3, 1))
	}
	x = activation.Relu(convolution(scope, x, n.Width, 7, 2))
	return MaxPool(x).Window(3).Strides(2).PadSame().Done()
}

// block adds to x what it learns from x. Where the shape changes, a convolution of a single pixel changes x as well.
func (n Network) block(scope *model.Scope, x *Node, channels, stride int) *Node {
	y, out := x, channels
	if n.Bottleneck {
		out = 4 * channels
		y = activation.Relu(convolution(scope.In("reduce"), y, channels, 1, 1))
		y = activation.Relu(convolution(scope.In("conv"), y, channels, 3, stride))
		y = convolution(scope.In("expand"), y, out, 1, 1)
	} else {
		y = activation.Relu(convolution(scope.In("first"), y, channels, 3, stride))
		y = convolution(scope.In("second"), y, channels, 3, 1)
	}
	if stride != 1 || x.Shape().Dim(-1) != out {
		x = convolution(scope.In("shortcut"), x, out, 1, stride)
	}
	return activation.Relu(Add(x, y))
}

// convolution is followed by batch normalisation, as everywhere in these networks.
func convolution(scope *model.Scope, x *Node, channels, kernel, stride int) *Node {
	x = layers.Convolution(scope.WithInitializer(initializer.HeFn(scope)), x).
		Channels(channels).KernelSize(kernel).Strides(stride).PadSame().UseBias(false).Done()
	return norm.BatchNorm(scope, x, -1).Momentum(0.9).Epsilon(1e-5).Done()
}
