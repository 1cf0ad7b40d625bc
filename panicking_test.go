// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import "testing"

func TestAPanicIsNoticedByWhatIsDeferred(t *testing.T) {
	for name, f := range map[string]func(see func()){
		"directly":     func(see func()) { defer see(); panic("x") },
		"in a closure": func(see func()) { defer func() { see() }(); panic("x") },
		"of the runtime": func(see func()) {
			defer see()
			var none []int
			none[len(t.Name())] = 1
		},
	} {
		seen := false
		func() {
			defer func() { _ = recover() }()
			f(func() { seen = panicking() })
		}()
		if !seen {
			t.Errorf("%s: the panic was not noticed", name)
		}
	}
	func() {
		defer func() {
			if panicking() {
				t.Error("there is no panic")
			}
		}()
	}()
	func() { // one that was recovered is over
		func() {
			defer func() { _ = recover() }()
			panic("x")
		}()
		if panicking() {
			t.Error("the panic is over")
		}
	}()
}
