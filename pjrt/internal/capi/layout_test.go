// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package capi

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// testdata/layout.txt was printed by a C program. The layout is the same on all 64-bit machines.
func TestStructsHaveTheLayoutOfC(t *testing.T) {
	text, err := os.ReadFile("testdata/layout.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for line := range strings.Lines(string(text)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if want[name], err = strconv.Atoi(number); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, got uintptr) {
		if n, ok := want[name]; !ok || n != int(got) {
			t.Errorf("%s is %d in Go and %d in C", name, got, n)
		}
		delete(want, name)
	}
	for _, s := range Structs {
		typ := reflect.TypeOf(s)
		check(typ.Name(), typ.Size())
		for i := range typ.NumField() {
			check(typ.Name()+"."+typ.Field(i).Name, typ.Field(i).Offset)
		}
		value := reflect.New(typ)
		if sized, ok := value.Interface().(interface{ SetSize() }); ok {
			sized.SetSize()
			check(typ.Name()+".SetSize", uintptr(value.Elem().Field(0).Uint()))
		}
	}
	for name := range want {
		t.Errorf("%s is in C alone", name)
	}
}

func TestFunctionsHaveNames(t *testing.T) {
	if got := ClientCreate.String(); got != "PJRT_Client_Create" {
		t.Error(got)
	}
	if got := Func(-1).String(); got != "function -1" {
		t.Error(got)
	}
}
