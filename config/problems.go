// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// problems collects errors, so that a user sees all of them at once.
type problems []error

func (ps *problems) add(errs ...error) { *ps = append(*ps, errs...) }

// err joins the problems in the order of their text, because they were found in the order of maps.
func (ps problems) err() error {
	slices.SortFunc(ps, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(ps...)
}

// refuse says that a given value is not allowed, and what is.
func (k *key) refuse(given any, from Source) error {
	return fmt.Errorf("epl: %s must be %s", k.setting(showGiven(given), from), k.typ.allowed())
}

// unknownKey names the nearest key.
func unknownKey(name string) error {
	k, likely := nearest(name)
	if likely {
		return fmt.Errorf("epl: unknown configuration key %s (did you mean %q?)", showGiven(name), k.name)
	}
	return fmt.Errorf(`epl: unknown configuration key %s (the nearest is %q; "epl config" lists all)`,
		showGiven(name), k.name)
}

// unknownVariable names the nearest variable; name is that of the key that the variable would set.
func unknownVariable(variable, name string) error {
	k, likely := nearest(name)
	if likely {
		return fmt.Errorf("epl: unknown configuration variable %s in the environment (did you mean %s?)",
			variable, k.variable())
	}
	return fmt.Errorf(`epl: unknown configuration variable %s in the environment `+
		`(the nearest is %s; "epl config" lists all keys)`, variable, k.variable())
}

// setting writes "key = value (set by source)".
func (k *key) setting(value string, from Source) string {
	return fmt.Sprintf("%s = %s (set by %s)", k.name, value, from)
}

// setting writes the present value of a key.
func (c *Config) setting(k *key) string { return k.setting(k.show(k.get(c)), c.source(k)) }

// show writes a canonical value for people: words are quoted, so that an empty one is seen.
func (k *key) show(value any) string {
	if s, ok := value.(string); ok {
		return strconv.Quote(s)
	}
	return k.typ.format(value)
}

// showGiven writes what a user gave, which may be anything.
func showGiven(given any) string {
	if given == nil {
		return "nil"
	}
	if scale, ok := given.(LossScale); ok { // its String hides half of one that is set twice
		return fmt.Sprintf("LossScale{Dynamic: %t, Value: %v}", scale.Dynamic, scale.Value)
	}
	switch v := reflect.ValueOf(given); v.Kind() {
	case reflect.String:
		return strconv.Quote(clip(v.String()))
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64: // what literals are
		return clip(fmt.Sprint(given))
	}
	return fmt.Sprintf("%s of type %T", clip(fmt.Sprint(given)), given)
}

// clip shortens a text that is too long to repeat in a sentence.
func clip(s string) string {
	const most = 100
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}
