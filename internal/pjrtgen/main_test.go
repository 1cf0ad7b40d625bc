// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const capi = "../../pjrt/internal/capi"

// parsed reads the header, if it is in the module cache or can be downloaded.
func parsed(t *testing.T) (*api, string) {
	t.Helper()
	path, err := header()
	if err != nil {
		t.Skip("there is no header: ", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return a, path
}

func TestTheGeneratedFileIsUpToDate(t *testing.T) {
	a, _ := parsed(t)
	src, err := a.goSource()
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join(capi, "gen_api.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(old, src) {
		t.Error("gen_api.go is stale: run go generate ./pjrt/...")
	}
}

func TestTheLayoutIsTheOneOfTheCCompiler(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	a, path := parsed(t)
	out, err := a.cLayout(path)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join(capi, "testdata", "layout.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(old, out) {
		t.Error("layout.txt is stale: run go generate ./pjrt/...")
	}
}

const small = `
#define PJRT_API_MAJOR 0
#define PJRT_API_MINOR 7
typedef enum { PJRT_Kind_A = 3, PJRT_Kind_B /* four */, } PJRT_Kind;
typedef struct PJRT_Thing PJRT_Thing;
struct PJRT_Use_Args {
  size_t struct_size;
  PJRT_Thing* thing; // a handle
  const char* name;
  PJRT_Kind kind;
  PJRT_Thing** things;
  void (*deleter)(PJRT_Thing* thing);
};
PJRT_DEFINE_STRUCT_TRAITS(PJRT_Use_Args,
                          things);
typedef struct PJRT_Api { _PJRT_API_STRUCT_FIELD(PJRT_Use); } PJRT_Api;
`

func TestPointersOfTheHeader(t *testing.T) {
	a, err := parse(small)
	if err != nil {
		t.Fatal(err)
	}
	src, err := a.goSource()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Minor = 7", "KindA int32 = 3", "KindB int32 = 4",
		"StructSize uintptr", "Thing uintptr", "Name unsafe.Pointer", "Kind int32", "Things unsafe.Pointer", "Deleter uintptr",
		"unsafe.Offsetof(s.Things)", "Use Func = 0",
	} {
		if !strings.Contains(strings.Join(strings.Fields(string(src)), " "), want) {
			t.Errorf("%q is missing in\n%s", want, src)
		}
	}
}

func TestBadHeadersAreRefused(t *testing.T) {
	for _, text := range []string{"", "#define PJRT_API_MINOR 1\n", strings.Replace(small, "= 3", "= x", 1)} {
		if _, err := parse(text); err == nil {
			t.Errorf("it was read: %q", text)
		}
	}
	a, err := parse(strings.Replace(small, "size_t struct_size", "long struct_size", 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.goSource(); err == nil || !strings.Contains(err.Error(), "long") {
		t.Error("an unknown type:", err)
	}
}

// Whatever a header says, it is read or refused.
func FuzzParse(f *testing.F) {
	f.Add(small)
	f.Add(strings.Replace(small, "PJRT_Thing** things", "union { const char* string_value; } ", 1))
	f.Fuzz(func(t *testing.T, text string) {
		if a, err := parse(text); err == nil {
			_, _ = a.goSource()
		}
	})
}
