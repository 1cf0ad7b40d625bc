// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// root is the module's, from here.
const root = "../.."

func TestTheGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(files)), []string{"ir/gen_ops.go", "record/gen_ops.go"}; !slices.Equal(got, want) {
		t.Errorf("it generates %v, not %v", got, want)
	}
	for name, src := range files {
		old, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(old, src) {
			t.Errorf("%s is stale: run go generate ./...", name)
		}
	}
}

func TestGeneratingTwiceGivesTheSame(t *testing.T) {
	a, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(a, b, bytes.Equal) {
		t.Error("the two differ")
	}
}

func TestTypesOfPackageComputeAreQualified(t *testing.T) {
	for in, want := range map[string]string{
		"int": "int", "...int": "[]int", "Value": "compute.Value", "...Value": "[]compute.Value", "[]Value": "[]compute.Value",
		"*ShardingSpec": "*compute.ShardingSpec", "[][2]int": "[][2]int", "dtypes.DType": "dtypes.DType", "[]*ShardingSpec": "[]*compute.ShardingSpec",
	} {
		if got := qualified(in); got != want {
			t.Errorf("%s becomes %s, not %s", in, got, want)
		}
	}
}

func TestAttributesAreNamedAsGoNamesThings(t *testing.T) {
	for in, want := range map[string]string{"axes": "Axes", "lhsBatchAxes": "LHSBatchAxes", "rhs": "RHS", "fftLength": "FFTLength", "dtype": "DType"} {
		if got := exported(in); got != want {
			t.Errorf("%s becomes %s, not %s", in, got, want)
		}
	}
}
