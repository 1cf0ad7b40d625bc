// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package checkpoint writes and reads sharded checkpoints: the variables of a model as pieces, each written by a worker that has it.
//
// What goes in are pieces (package state) and their bytes. What comes out is a folder that any plan, number of workers and devices can load
// from, and of the tensors in it any region. It knows no store, device or job: package epl connects it with these.
//
// # On disk
//
//	dir/
//	  n0000007-step-00001200/          a checkpoint: the 8th that was begun, of step 1200
//	    worker-00000.safetensors       the pieces that worker 0 owns
//	    worker-00001.safetensors
//	    manifest.json                  written last: without it there is no checkpoint
//
// A file of pieces is in the safetensors format: 8 bytes with the length of the header, the header, which is JSON, and the data. Every
// tensor in it is a piece; its name is the path of the variable and the region, such as "/dense/weights[0:4,0:8]". Under
// "__metadata__" the header has the pieces with checksums ([Piece]). Checksums are CRC-32C, of every block of 1 MiB of a piece, so that a
// part of it can be read and checked.
//
// The manifest ([Manifest]) has what is not a tensor: step, versions, plan, hyperparameters, and for each file its length and the checksum of its
// header. It ends in a checksum of its own. Nothing in it grows with the model.
//
// # When is it there
//
// Each worker writes its file, syncs it and the folder, and then tells the first one, which writes the manifest under another name, syncs it, renames it to
// manifest.json and syncs the folder. So a checkpoint is there, complete, or it is not. What a disk or a network lost or changed nevertheless is found by
// the checksums, which are verified whenever something is read.
//
// # What it may assume
//
// All workers see the same folder, and one job writes to it at a time. Everything goes through [FS], so that tests can have any call fail.
package checkpoint
