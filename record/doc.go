// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package record is a compute.Backend that writes programs down instead of compiling them.
//
// GoMLX builds its graph against [Backend] as against any other backend. Every op goes into an [ir.Program]; its
// output shapes, and the errors of ops that make no sense, come from emitting the same op at once to a throw-away
// builder of GoMLX's pure-Go backend (the shadow), with rules of our own for what that lacks (see shadow.go). What will run the
// program has no part in it: a model is recorded as the same program everywhere. When GoMLX asks to compile,
// the finished program goes to the [Engine], which plans it and returns what will run it. The engine also owns the
// buffers.
//
// # What the recorder knows beyond the ops
//
// Annotation state lives on the [Builder]: one goroutine builds one graph, so that there are no locks and no globals,
// and two graphs built at the same time do not meet. [Of] finds the builder of a GoMLX graph.
//
// The backward part is built by GoMLX's automatic differentiation, far from the user's annotations. While the gradient
// of forward node n is built, ops take n's TaskGraph (see vjp.go). What is built between those windows (sums of
// gradients, custom gradients, clones of forward ops made by Node.Checkpoint) is recognised by value numbering or
// follows its inputs (see backward.go). Apply ops follow the variable they update (see finish.go).
package record

//go:generate go run ../internal/gen -root ..
