// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"slices"
	"strings"
	"testing"
)

// longSequences are models whose samples have many more words than a word has features: words are sharded, and weights whole.
func longSequences() (models []Parted) {
	for _, name := range []string{"transformer", "tied", "dropout", "zoo"} {
		m := partedModel(name)
		m.Batch = Tokens(2, 61, 19)
		if name == "zoo" {
			m.Batch = Tokens(3, 16, 19)
		}
		models = append(models, m)
	}
	return models
}

func TestSplitSequencesGiveTheWeightsOfOneDevice(t *testing.T) {
	for _, m := range longSequences() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			plans := []splitPlan{{parts: []int{2}, replicas: 2, micro: 1}, {parts: []int{3}, replicas: 1, micro: 2}, {parts: []int{4}, replicas: 1, micro: 1}}
			if m.Most > 1 {
				plans = append(plans, splitPlan{parts: []int{2, 3}, replicas: 1, micro: 3, schedule: "PreferBackward"},
					splitPlan{parts: []int{-1, 3}, replicas: 1, micro: 2, schedule: "ZeroBubble"}, splitPlan{parts: []int{-2, 2}, colocate: true, replicas: 1, micro: 2})
			}
			for i, p := range plans {
				if testing.Short() && i%2 > 0 {
					continue
				}
				t.Run(p.String(), func(t *testing.T) {
					env := p.env(t, nil)
					mustBeClose(t, m.measure(t, p, 3), m.under(p).piped(t, env, 0, sgd(), 3))
					var text strings.Builder
					if err := env.Explain(&text); err != nil {
						t.Fatal(err)
					}
					sharded := slices.ContainsFunc(strings.Split(text.String(), "\n"), func(line string) bool {
						return strings.Contains(line, "input arg0") && strings.Contains(line, "sharded(1): each device computes with its rows")
					})
					if want := p.parts[0] > 1; sharded != want && m.Name != "zoo" { // it has hardly more words than features
						t.Errorf("words are sharded: %v\n%s", sharded, &text)
					}
				})
			}
		})
	}
}
