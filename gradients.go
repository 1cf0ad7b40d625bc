// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"path"
	"strings"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl/record"
)

// gradientsScope is where gradients are kept, below the scope of the optimizer.
const gradientsScope = "epl_gradients"

// keepGradients makes a training program keep its reduced gradients, if it is to, in variables that nothing reads, and returns their paths. Being state of the optimizer, they are
// where the rest of it is, a part on each device with ZeRO, and can be read as any variable.
func keepGradients(b *record.Builder, scope *model.Scope, paths []string, gradients []*graph.Node) (kept []string) {
	if !b.KeepsGradients() {
		return nil
	}
	for i, g := range gradients {
		dir, name := path.Split(paths[i])
		at := scope.At("%s", optimizer.Scope).At("%s", gradientsScope)
		for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
			if part != "" {
				at = at.At("%s", part)
			}
		}
		v := at.WithInitializer(initializer.Zero).VariableWithShape(name, g.Shape()).SetTrainable(false)
		v.SetNodeValue(graph.Identity(g))
		kept = append(kept, v.Path())
	}
	return kept
}

// gradientOf is the path of the variable whose gradient is kept in one of this path; "": it keeps none.
func gradientOf(kept string) string {
	_, of, _ := strings.Cut(kept, "/"+optimizer.Scope+"/"+gradientsScope)
	return of
}
