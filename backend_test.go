package epl_test

import (
	"testing"

	"github.com/gomlx/compute/support/backendtest"

	"github.com/easyparallel/epl"
)

// The tests that GoMLX has for backends pass on EPL: as recorded, and improved.
func TestGoMLXBackendTests(t *testing.T) {
	for _, passes := range []string{"none", "all"} {
		t.Run(passes, func(t *testing.T) {
			env, err := epl.Init(nil, epl.WithPasses(passes))
			if err != nil {
				t.Fatal(err)
			}
			defer env.Close()
			backendtest.RunAll(t, env.Backend(), nil)
		})
	}
}
