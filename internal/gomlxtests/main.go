// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command gomlxtests compares two runs of GoMLX's own tests, "go test -json" on its plain backend and on EPL, and prints what
// passes on the former and fails on the latter. scripts/gomlx-tests.sh makes the runs.
//
// Refusals that are documented are allowed. Their file has one in each line, "PACKAGE TEST: REASON", for the test and those
// below it; lines that begin with # are comments. BACKEND stands for the backend in a name.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/pkg/errors"
)

func main() {
	plain := flag.String("plain", "go", "what GOMLX_BACKEND was in the first run")
	backend := flag.String("epl", "epl", "what it was in the second")
	refusals := flag.String("refusals", "", "`file` of documented refusals")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: gomlxtests [flags] PLAIN.json EPL.json")
		os.Exit(2)
	}
	same, err := compareFiles(os.Stdout, *plain, *backend, flag.Arg(0), flag.Arg(1), *refusals)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !same {
		os.Exit(1)
	}
}

func compareFiles(w io.Writer, plain, backend, plainFile, eplFile, refusalsFile string) (same bool, err error) {
	a, err := readFile(plainFile, plain)
	if err != nil {
		return false, err
	}
	b, err := readFile(eplFile, backend)
	if err != nil {
		return false, err
	}
	var refused []refusal
	if refusalsFile != "" {
		f, err := os.Open(refusalsFile)
		if err != nil {
			return false, errors.Wrap(err, "epl: documented refusals")
		}
		defer f.Close()
		if refused, err = readRefusals(f); err != nil {
			return false, errors.WithMessage(err, refusalsFile)
		}
	}
	return compare(a, b, refused).print(w, plain, backend), nil
}

func readFile(file, backend string) (results, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, errors.Wrap(err, "epl: results of tests")
	}
	defer f.Close()
	r, err := read(f, backend)
	return r, errors.WithMessage(err, file)
}
