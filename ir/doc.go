// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package ir is the intermediate representation: a training, evaluation or other program of GoMLX as plain data.
//
// It is the only language between the packages of EPL. [record] makes a [Program] while GoMLX builds its graph; the
// planner reads it; every pass takes one and gives one; [emit] turns it, or a segment cut out by [Cut], into a program of
// an inner backend. Package ir assumes nothing and imports nothing of EPL: what the others may assume of a program is
// what [Program.Verify] checks, after recording and after every pass.
//
// # The parts of a program
//
// A [Program] has a main [Func], possibly named functions, and what EPL knows about the values of main:
//
//   - [TaskGraph]: the ops recorded under one annotation. An op's TaskGraph is nil when it lies outside every scope.
//   - [Phase]: forward, backward, or apply (what the optimizer does with the gradients, once per step).
//   - [Variable]: a parameter of main that is state of the model, with the value that replaces it, if any.
//   - [Gradient]: which value is the gradient of which variable.
//   - [Output]: what each output of main is: the new value of a variable, or a result (a loss, a metric, a prediction).
//   - [Collection]: values the user named by AddToCollection.
//
// A [Func] is a list of ops in an order in which they can be computed. An [Op] is an operation with typed static
// attributes ([Attrs], one generated struct per operation), inputs, outputs and, for control flow, functions. A
// [Value] is one output of one op. A closure may use values of the functions around it.
//
// # Logical and SPMD programs
//
// A recorded program is logical: it computes what one device computes of a batch. Passes give it stages ([Stage]) and
// instances ([Local]): an op that differs between replicas or micro-batches is Varying, and a [Merge] is where they agree.
//
// After the pass shard the program is SPMD: an op stands for all devices of its stage. Values keep their logical shapes. How the
// devices hold a value is its [Placement], one for each [Axis] of the stage's mesh. A [Reshard] changes a placement, and
// [Position] is where a device is along an axis. The size of the program does not depend on the number of devices.
//
// # Text
//
// [Program.String] prints a program and [Parse] reads it back to an equal one:
//
//	program "train"
//	taskgraph 0 "stage_0" replicate(1) "model.go:12"
//	variable "/layer/w" %1 trainable update %5 taskgraph 0
//	input %0
//	gradient %1 = %4
//	outputs update %1 result
//	main {
//	  %0 = Parameter() {Name: "arg0", Shape: float32[8]} -> float32[8] : forward
//	  %1 = Parameter() {Name: "/layer/w", Shape: float32[8]} -> float32[8] : forward taskgraph 0
//	  %2 = Mul(%0, %1) -> float32[8] : forward taskgraph 0 in "/layer" "model.go:13"
//	  %3 = ReduceSum(%2) {Axes: [0]} -> float32[] : forward taskgraph 0 "model.go:14"
//	  %4 = Identity(%0) -> float32[8] : backward taskgraph 0 by vjp "model.go:13"
//	  %5 = Sub(%1, %4) -> float32[8] : apply taskgraph 0 by variable
//	  return %5, %3
//	}
//
// A value is named after its op: %12 is the first output of op 12, %12.1 the second.
//
// A placement is printed after the shape: "float32[8] on model of 2 sharded(0)".
//
// [record]: https://pkg.go.dev/github.com/easyparallel/epl/record
// [emit]: https://pkg.go.dev/github.com/easyparallel/epl/emit
package ir
