// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package epl is the Easy Parallel Library: it turns a GoMLX training program written for one device into a
// distributed one, by a few annotations.
//
// EPL is a GoMLX backend. [Init] makes it, [Env.Backend] hands it to GoMLX, which builds its graph against it as
// against any other. EPL captures the graph (with the annotation and the phase of each op, and the gradient of each
// variable), plans how it runs on the devices, partitions and optimises it, and runs it on inner backends: on CPUs EPL's own
// engine by default.
//
//	env, err := epl.Init(nil)                                        // + epl
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer env.Close()
//	trainer := train.NewTrainer(env.Backend(), store, Model, lossFn, //   backend from epl
//		epl.Optimizer(optimizer.FromStore(store)), nil, nil)         // + epl
//	loop := train.NewLoop(trainer)
//	_, err = loop.RunSteps(env.Dataset(ds), 500)                     // + epl
//
// # Annotations
//
// [With] runs a part of the model under a [Strategy]; the ops recorded meanwhile form a TaskGraph, the unit of
// placement. [SetDefaultStrategy] does so for what is outside such scopes. [Optimizer] wraps the optimizer, so that
// EPL knows the gradients. [AddToCollection] says what to do with values. All of them are no-ops on other backends:
// an annotated model still runs on plain GoMLX.
//
//	func Model(scope *model.Scope, x *Node) *Node {
//		epl.With(x, epl.Replicate(1, "stage_0"), func() { x = partOne(scope, x) })
//		epl.With(x, epl.Replicate(1, "stage_1"), func() { x = partTwo(scope, x) })
//		return x
//	}
//
// Like all graph building in GoMLX, they panic on errors, which the executor returns as errors.
//
// # Seeing what EPL understood
//
// [Env.Explain] prints every compiled program: TaskGraphs, phases, variables, gradients, the plan, and what each pass changed.
// With EPL_DUMP=dir in the environment, each program is written to dir after every pass, as text and as a page.
//
// # What this version does
//
// It trains on the devices of one worker ([WithLocalDevices]) or of several, which the command epl-launch starts: data
// parallel, as a pipeline of TaskGraphs that you annotate or EPL cuts (auto.auto_parallel, pipeline.num_stages), with
// stages of one device or several, tensor parallel in TaskGraphs under [Split], in mixtures of these, and with any number of
// micro-batches per step. It gives the weights of one device on the same samples.
//
// Larger models fit by recompute, by sharding optimizer state, gradients and weights over model replicas, by offload, mixed
// precision and apply groups, in any mixture: docs/memory.md names the settings.
// [Env.Explain] predicts what each device needs.
package epl

import (
	"github.com/easyparallel/epl/config"
)

// Config holds all settings: one struct per category, such as cfg.Pipeline.NumMicroBatch. See docs/configuration.md
// for every key.
type Config = config.Config

// NewConfig resolves settings: from params, whose keys are "category.attribute"; then from the environment, where
// "pipeline.num_micro_batch" is EPL_PIPELINE_NUM_MICRO_BATCH; then from the defaults. What is wrong is reported all at
// once, by key, with what is allowed.
//
//	cfg, err := epl.NewConfig(map[string]any{"cluster.colocate_split_and_replicate": true})
func NewConfig(params map[string]any) (*Config, error) { return config.New(params) }
