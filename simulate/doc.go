// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package simulate plays the lists of a schedule in time: what a step takes on a cluster that need not exist.
//
// What goes in are the lists that devices would run ([schedule.Program]) and what the cluster can do ([cost.Cluster]). What comes out is a
// [Result]: the step time, what each device does in it, and a timeline in the format of a real one ([trace.Step]).
//
//	r, err := simulate.Run(lists, cost.Uniform(2, 8, profile, inside, between), simulate.Options{})
//	…
//	fmt.Println(r.Step, r.Bubble())
//
// Events happen in the order of time. A device runs its list as exec/local does: segments one after the other; merges beside them, in the
// order of their communicator; a value of another stage is waited for; what is gathered or loaded ahead is waited for when it is used.
// Works that share something, the cores of a host or a link, become slower together. docs/simulate.md says what is not modelled.
//
// Devices that are alike are simulated once: model replicas with the same devices on the same hosts, and the devices of a group that are
// equally fast. So the cost grows with the lists of a model replica, not with the number of replicas. A run is the same every time.
// It assumes that schedules are checked.
package simulate
