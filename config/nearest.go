// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"

	"github.com/easyparallel/epl/internal/near"
)

// nearest returns the key whose name is most like the given one, the first in the table among equals, and whether it
// is close enough to be what was meant.
func nearest(name string) (best *key, likely bool) {
	whole, attribute := near.Letters(name), near.Letters(attributeOf(name))
	least := 0
	for i := range keys {
		k := &keys[i]
		// The right attribute under the wrong category, or under none, is a likely mistake: it counts as one letter.
		d, close := near.Distance(whole, near.Letters(k.name)), true
		if a := near.Distance(attribute, near.Letters(attributeOf(k.name))); 1+a < d {
			d, close = 1+a, 2*a <= len(attribute)
		}
		if len(whole) >= shortestStart && strings.HasPrefix(string(near.Letters(k.name)), string(whole)) {
			d, close = 1, true // the start of a key, which someone was too lazy to finish
		}
		if best == nil || d < least {
			best, least, likely = k, d, close && 2*d <= len(whole)
		}
	}
	return best, likely
}

// attributeOf returns the part of a key after its category, or all of it when it names none.
func attributeOf(name string) string {
	if _, attribute, ok := strings.Cut(name, "."); ok {
		return attribute
	}
	return name
}

// shortestStart is how many letters the start of a key must have to count for it: more than a category.
const shortestStart = 10
