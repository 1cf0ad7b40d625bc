// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/examples/internal/residual"
)

// logits builds the network and a classifier upon it.
func logits(scope *model.Scope, network residual.Network, images *Node, classes int) *Node {
	epl.SetDefaultStrategy(images, epl.Replicate(1)) // + epl
	x := network.Features(scope, images)
	return layers.Dense(scope.In("logits"), x, true, classes)
}
