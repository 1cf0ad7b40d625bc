// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/examples/internal/residual"
)

// classifier is a network of two parts: a trunk with most of the work, and a head with most of the weights.
type classifier struct {
	trunk   residual.Network
	classes int
	devices int // that share a batch: all of them, or 1 if each has its own
}

// logits builds it. Images are [batch, size, size, 3], logits are [batch, classes].
func (c classifier) logits(scope *model.Scope, images *Node) *Node {
	var x *Node
	epl.With(images, epl.Replicate(c.devices, "trunk"), func() { // + epl
		x = c.trunk.Features(scope, images)
	})
	epl.With(images, epl.Split(c.devices, "head"), func() { // + epl
		x = layers.Dense(scope.In("head"), x, true, c.classes)
	})
	return x
}
