// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package rendezvous is how the workers of a job find each other, agree on what they are about to do, and learn at once
// when one of them stops.
//
// # What goes in and what comes out
//
// There is one [Server], in the launcher or in the first worker, and one [Member] in every worker, which keeps a
// connection to it. [Join] returns when all workers have come and have the same [Fact]s. A Member then makes connections
// between workers, compares texts (the plan of a program), passes questions, and knows what each worker is doing.
//
// # Where they meet
//
// [Options].URL, from EPL_RDZV, says where the server is:
//
//   - tcp://host:port: it is there, made by the launcher.
//   - first://host:port: worker 0 is on that host, and serves at that port.
//   - file:///path: worker 0 serves on this machine, and writes to that file where, with a token of its own. For workers
//     that mpirun or srun starts on one machine. With file://0.0.0.0/path it serves on all interfaces, and the file is in
//     a folder that the machines share.
//
// Addresses may be of IPv4 or IPv6, the latter in brackets. All workers of a job are given the same URL. A host that is the
// loopback interface says that all are on this machine: then nobody listens elsewhere.
//
// # What it promises
//
// A worker that calls [Member.Fail], or whose process ends without [Member.Leave], ends the job on all workers, with its
// name: [Member.Done]. Who only noticed a failure says who is to blame. A worker that will not take part in anything any
// more says so by [Member.End], which all see in its [State]. One that is silent is reported by Logf on all workers, and may come back; how long to wait for it
// is for others to decide. Who does not know the token, or sends what is not understood, is refused, and the job does not
// notice. Nothing waits for ever. Questions reach other workers also where the way to the server is cut.
//
// # What it assumes
//
// That workers with the same token mean the same job, and do not try to harm it.
//
// # Why it is not on gRPC
//
// gRPC does not hand out authenticated connections of plain TCP, which the data plane needs, its calls overtake each other, and its errors hide whether a
// connection was closed, reset or damaged. bench/control compares both.
package rendezvous
