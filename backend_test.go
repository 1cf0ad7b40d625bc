// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"testing"

	"github.com/gomlx/compute/support/backendtest"

	"github.com/easyparallel/epl"
)

// The tests that GoMLX has for backends pass on EPL: as recorded, and improved, op by op and on our engine.
func TestGoMLXBackendTests(t *testing.T) {
	for _, inner := range []string{"go", "cpu"} {
		for _, passes := range []string{"none", "all"} {
			t.Run(inner+"/"+passes, func(t *testing.T) {
				env, err := epl.Init(nil, epl.WithInner(inner), epl.WithPasses(passes))
				if err != nil {
					t.Fatal(err)
				}
				defer env.Close()
				backendtest.RunAll(t, env.Backend(), nil)
			})
		}
	}
}
