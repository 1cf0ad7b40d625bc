// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package source has samples in files of usual formats, for [data.FromIndex]: [Tokens] are texts as numbers, in files that are mapped
// into memory; [Lines] are those of text and JSONL files; [TFRecords] and [Images] are those of TensorFlow's files and of folders.
//
// What goes in is a list of files. What comes out is a [data.Index]: samples by number, each of which is read when it is asked for. What is wrong with a file is an error that
// names it and the byte.
package source
