// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryFieldHasItsKeyAndEveryKeyItsField walks Config and the table side by side: same names, same order.
func TestEveryFieldHasItsKeyAndEveryKeyItsField(t *testing.T) {
	var c Config
	next := 0
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	for category, fields := range reflect.ValueOf(&c).Elem().Fields() {
		if !category.IsExported() {
			continue
		}
		for attribute, field := range fields.Fields() {
			if next == len(keys) {
				t.Fatalf("no key for field %s.%s", category.Name, attribute.Name)
			}
			k := &keys[next]
			next++
			if got, want := plain(k.name), plain(category.Name+"."+attribute.Name); got != want {
				t.Errorf("key %s stands where field %s.%s does", k.name, category.Name, attribute.Name)
			}
			if k.field(&c) != field.Addr().Interface() {
				t.Errorf("key %s does not lead to field %s.%s", k.name, category.Name, attribute.Name)
			}
			if reflect.TypeOf(k.def) != field.Type() {
				t.Errorf("default of %s is a %T, its field a %s", k.name, k.def, field.Type())
			}
		}
	}
	for _, k := range keys[next:] {
		t.Errorf("no field for key %s", k.name)
	}
}

func TestTheTableIsSound(t *testing.T) {
	names, variables := map[string]bool{}, map[string]bool{}
	for i := range keys {
		k := &keys[i]
		if names[k.name] || variables[k.variable()] {
			t.Errorf("%s or its variable stands in the table twice", k.name)
		}
		names[k.name], variables[k.variable()] = true, true
		if !strings.HasSuffix(k.doc, ".") || strings.ContainsAny(k.doc, "|\n") {
			t.Errorf("%s: the doc %q is not made of sentences for one cell of a table", k.name, k.doc)
		}
		if v, ok := k.typ.convert(k.typ.format(k.def)); !ok || v != k.def {
			t.Errorf("%s: the text of default %v reads as %v, %t", k.name, k.def, v, ok)
		}
		if words, ok := k.typ.(enumType); ok {
			if !slices.Contains(words, k.def.(string)) {
				t.Errorf("%s: default %q is not allowed", k.name, k.def)
			}
			if slices.Index(words, "") > 0 {
				t.Errorf("%s: off is not the first of its words", k.name)
			}
		}
		if k.needs == "" {
			if k.choice {
				t.Errorf("%s is a choice but needs nothing", k.name)
			}
			continue
		}
		if off := row(k.needs).def; off != false && off != "" {
			t.Errorf("%s needs %s, which is not off by default", k.name, k.needs)
		}
	}
}
