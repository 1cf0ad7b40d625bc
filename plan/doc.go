// Package plan decides how a training program runs, and has passes and schedule apply what it decided.
//
// What goes in is a program as recorded, a cluster, which may be only described, and a configuration. What comes out of [Decide] is
// a [Plan]: all decisions as data, with reasons and predicted costs, and a [Result], what they make of the program. It is a pure
// function. In a job the first worker decides, and the others apply its plan. A plan prints as JSON ([Plan.Encode]), reads back ([Decode]), is compared with
// another ([Diff]), and is applied to the same program again ([Plan.Apply]), or refused with what does not fit.
//
// A decision about the whole program is a setting of the configuration. Those about single ops and variables are made on the way,
// on the program as the pass gets that applies them ([Choose]). Passes never choose.
//
// Where the user left that to EPL, [Stages] cuts a program without annotations into stages: every op gets a TaskGraph, on one
// device. What goes in must have been recorded with the forward op that each backward op serves (ir.Op.Of); [Cut.Apply] annotates the
// program as a careful user would have done, and nothing else in EPL knows that the stages were not written by hand. That work is
// done in this order, a file each: what of the program will run at all (live.go); one order of it, in which every op has a
// position, and where it repeats (chain.go); what crosses when that order is cut (traffic.go); the best cuts (divide.go);
// and what follows for every op and variable (stages.go).
package plan
