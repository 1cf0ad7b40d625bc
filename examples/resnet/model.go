package main

import (
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/easyparallel/epl"
)

// resnet describes a residual network ("Deep Residual Learning for Image Recognition", He et al. 2015).
type resnet struct {
	size       int   // height and width of its images
	width      int   // channels of the first stage; each further stage has twice as many, of half the size
	blocks     []int // residual blocks of each stage
	bottleneck bool  // blocks of 1×1, 3×3 and 1×1 convolutions, the last with four times the channels; else two of 3×3
	batch      int   // samples of a batch, if the command line does not say it
}

// models are those of the flag -model.
var models = map[string]resnet{
	"resnet50": {size: 224, width: 64, blocks: []int{3, 4, 6, 3}, bottleneck: true, batch: 32},
	"small":    {size: 32, width: 8, blocks: []int{1, 1, 1}, batch: 16},
}

// logits builds the network. Images are [batch, size, size, 3].
func (r resnet) logits(scope *model.Scope, images *Node, classes int) *Node {
	epl.SetDefaultStrategy(images, epl.Replicate(1)) // + epl
	x := r.stem(scope.In("stem"), images)
	for stage, blocks := range r.blocks {
		for block := range blocks {
			stride := 1
			if stage > 0 && block == 0 {
				stride = 2
			}
			x = r.block(scope.In("stage_%d_block_%d", stage, block), x, r.width<<stage, stride)
		}
	}
	x = ReduceMean(x, 1, 2)
	return layers.Dense(scope.In("logits"), x, true, classes)
}

// stem makes the first features. That of large images reduces them to a quarter of their size.
func (r resnet) stem(scope *model.Scope, x *Node) *Node {
	if r.size < 64 {
		return activation.Relu(convolution(scope, x, r.width, 3, 1))
	}
	x = activation.Relu(convolution(scope, x, r.width, 7, 2))
	return MaxPool(x).Window(3).Strides(2).PadSame().Done()
}

// block adds to x what it learns from x. Where the shape changes, a convolution of a single pixel changes x as well.
func (r resnet) block(scope *model.Scope, x *Node, channels, stride int) *Node {
	y, out := x, channels
	if r.bottleneck {
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
