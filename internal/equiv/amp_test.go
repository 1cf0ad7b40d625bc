package equiv

import (
	"testing"
)

// ampTypes are the types of mixed precision, with how far losses may be from those of float32, and weights after a few steps.
var ampTypes = []struct {
	name            string
	losses, weights float64
}{
	{"bfloat16", 3e-2, 1e-2},
	{"float16", 1e-2, 2e-3},
}

func amp(dtype string, more map[string]any) map[string]any {
	params := map[string]any{"amp.level": "O1", "amp.dtype": dtype}
	for k, v := range more {
		params[k] = v
	}
	return params
}

func TestMixedPrecisionTrainsLikeFloat32(t *testing.T) {
	for _, m := range Models() {
		for _, a := range ampTypes {
			t.Run(m.Name+"/"+a.name, func(t *testing.T) {
				t.Parallel()
				want := trainParallel(t, newCluster(t, 1, 1, nil), m, sgd(), 5)
				got := trainParallel(t, newCluster(t, 1, 1, amp(a.name, nil)), m, sgd(), 5)
				if err := CloseLosses(want, got, a.losses); err != nil {
					t.Error(err)
				}
				closeTo(t, want, got, a.weights)
			})
		}
	}
}

// closeTo compares the variables that both runs have: one has a loss scale beside them.
func closeTo(t *testing.T, want, got *Run, tolerance float64) {
	t.Helper()
	for v := range want.Store.IterVariables() {
		w := got.Store.GetVariable(v.Path())
		if w == nil || !v.Trainable {
			continue
		}
		if diff, norm := distance(numbers(v.MustValue()), numbers(w.MustValue())); !(diff <= tolerance*(norm+1e-3)) {
			t.Errorf("variable %s differs by %g at a norm of %g", v.Path(), diff, norm)
		}
	}
}
