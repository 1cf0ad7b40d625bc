// Package plan decides how a program is divided where the user left that to EPL.
//
// [Stages] takes a training program as recorded, without annotations, and gives every op a stage: a TaskGraph of its
// own, on one device. What goes in must have been recorded with the forward op that each backward op serves (ir.Op.Of);
// what comes out is the same program, annotated as a careful user would have done, and a [Cut] that explains it.
// Nothing else in EPL knows that the stages were not written by hand.
//
// The work is done in this order, a file each: what of the program will run at all (live.go); one order of it, in which
// every op has a position (chain.go); what crosses when that order is cut (traffic.go); where it repeats (blocks.go);
// the best cuts (divide.go); and what follows for every op and variable (stages.go).
package plan
