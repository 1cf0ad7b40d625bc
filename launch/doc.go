// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package launch starts the workers of a job, looks after them, and ends them. The command epl-launch is its face.
//
// In go [Options]: a command, how many workers run it, and on which machines. [Run] starts them, here or by ssh, each with
// variables that tell it who it is (see cluster and rendezvous), serves the place where they meet, shows what they print,
// and returns the status that the job ends with. Nothing that it started is left running when it returns, whatever happens.
//
// A *crew* is the workers of one machine. The crew of this machine is a [local] one; those of others are [remote]: epl-launch
// runs there too, as an agent, and says over its connection what a local crew says in the process. Above them the
// director decides: who failed first, when to end the others, what to show.
//
// The package knows nothing of what the workers do, and works for any command. It assumes Linux; on other systems
// processes that leave their worker's process group are not found again.
package launch
