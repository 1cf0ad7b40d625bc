// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomlx/compute/support/humanize"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

// savers are the settings that docs/zero.md compares.
var savers = []map[string]any{
	nil,
	{"zero.level": "v0"},
	{"zero.level": "v1"},
	{"zero.level": "v2"},
	{"offload.level": "v0"},
	{"offload.level": "v0", "optimizer.num_apply_group": 24},
	{"zero.level": "v2", "offload.level": "v0"},
}

// memoryTable compares what a device needs under each of them, by EPL's account.
func memoryTable(t *testing.T, made map[string]string) {
	t.Helper()
	uses := []string{"weights", "optimizer state", "gradients", "communication"}
	var b strings.Builder
	fmt.Fprintf(&b, "| settings | most | %s |\n|---|%s\n", strings.Join(uses, " | "), strings.Repeat("---|", 1+len(uses)))
	for _, params := range savers {
		env := newEnv(t, params, epl.WithLocalDevices(4))
		if err := trainTower(env, tower, 128); err != nil {
			t.Fatal(err)
		}
		if params == nil {
			made["memory explained"] = fenced("text", memorySection(t, env))
		}
		var settings []string
		for _, key := range []string{"zero.level", "offload.level", "optimizer.num_apply_group"} {
			if params[key] != nil {
				settings = append(settings, fmt.Sprintf("`%s=%v`", key, params[key]))
			}
		}
		if settings == nil {
			settings = []string{"none"}
		}
		d := env.Predicted().Devices[0]
		fmt.Fprintf(&b, "| %s | %s |", strings.Join(settings, " "), humanize.Bytes(d.PeakBytes))
		for _, u := range uses {
			fmt.Fprintf(&b, " %s |", humanize.Bytes(d.Peak[u]))
		}
		b.WriteString("\n")
	}
	made["zero table"] = b.String()
}

// memorySection is what Explain says about memory.
func memorySection(t *testing.T, env *epl.Env) string {
	t.Helper()
	var b strings.Builder
	if err := env.Explain(&b); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(b.String(), "  memory of a device")
	section, _, _ := strings.Cut(rest, "\n\n")
	return "  memory of a device" + section + "\n"
}

// memoryMessages provokes the errors about memory that docs/errors.md explains.
func memoryMessages(t *testing.T, message func(name string, err error)) {
	t.Helper()
	env := newEnv(t, map[string]any{"cluster.device_memory": "2MiB"}, epl.WithLocalDevices(4))
	message("memory", errors.Cause(trainTower(env, tower, 128)))
	env = newEnv(t, map[string]any{"gradient_checkpoint.type": "collection"})
	message("checkpoint", errors.Cause(trainTower(env, func(scope *model.Scope, x *Node) *Node {
		epl.AddToCollection(epl.Checkpoints, x)
		return layers.Dense(scope, x, true, 1)
	}, 4)))
}
