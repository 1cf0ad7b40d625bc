// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package worker

import "github.com/easyparallel/epl/comm"

// Copied says that all workers have copied a step to memory. The first goes out at once, others with the next sign of life.
func (j *Job) Copied(step int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := j.checkpoints.Copied == 0
	j.checkpoints.Copied = step
	if first {
		j.member.SetCheckpoints(j.checkpoints)
	} else {
		j.member.KeepCheckpoints(j.checkpoints)
	}
}

// Host is the same for workers of the same machine.
func (j *Job) Host(worker int) string { return j.member.Workers()[worker].HostID }

// LargestNow is like Largest, at the same point of the same program.
func (j *Job) LargestNow(program string, numbers []int64) error {
	return j.Leaders.Do(comm.Call{Op: comm.AllReduce, Buf: numbers, Reduction: comm.Max, Program: program})
}

// Largest replaces each number by the largest that a worker has. All call it, one after the other, also while programs run: it is for copies of training state.
func (j *Job) Largest(numbers []int64) error {
	return j.copying.Do(comm.Call{Op: comm.AllReduce, Buf: numbers, Reduction: comm.Max, Program: "recovery.copies"})
}
