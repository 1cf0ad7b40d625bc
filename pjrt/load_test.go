// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/easyparallel/epl/pjrt"
)

// A library that is a plugin by its looks alone is loaded and refused.
func TestLoadOfALibraryOfC(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	for name, test := range map[string]struct {
		minor     int
		functions int
		want      string
	}{
		"old":   {54, 130, "has PJRT API 0.54; EPL needs 0.72 or newer"},
		"short": {90, 0, "has PJRT API 0.90 and lacks PJRT_Error_Destroy"},
		"empty": {104, 130, "has PJRT API 0.104 and lacks PJRT_Error_Destroy"},
	} {
		t.Run(name, func(t *testing.T) {
			source, library := filepath.Join(t.TempDir(), "plugin.c"), filepath.Join(t.TempDir(), "pjrt_c_api_"+name+"_plugin.so")
			text := fmt.Sprintf(`#include <stddef.h>
				struct { size_t size; void* extensions; size_t version_size; void* version_extensions; int major, minor; void* functions[%[2]d]; } api;
				void* GetPjrtApi(void) { api.size = sizeof(api); api.minor = %[1]d; return &api; }`, test.minor, test.functions)
			if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Setenv(pjrt.LibraryPath, filepath.Dir(library))
			found := must[string](t)(pjrt.Find(name))
			_, err := pjrt.Load(found)
			var refused *pjrt.VersionError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), library+" "+test.want) {
				t.Error(err)
			}
		})
	}
}
