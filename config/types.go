// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// valueType turns what a user gave into a field's value, and back into text.
type valueType interface {
	// name is the type as a listing shows it.
	name() string

	// allowed completes the sentence "the value must be …".
	allowed() string

	// convert returns the canonical value of what code (any type) or the environment (a string) gave, or false when
	// it is not allowed. It accepts canonical values and leaves them as they are.
	convert(given any) (any, bool)

	// format writes a canonical value as text that convert turns back into it.
	format(value any) string
}

// boolType is true or false, in any case; nothing else that other languages take for a truth value.
type boolType struct{}

func (boolType) name() string        { return "bool" }
func (boolType) allowed() string     { return "true or false" }
func (boolType) format(v any) string { return strconv.FormatBool(v.(bool)) }

func (boolType) convert(given any) (any, bool) {
	if v := reflect.ValueOf(given); v.Kind() == reflect.Bool {
		return v.Bool(), true
	}
	s, ok := text(given)
	switch {
	case ok && strings.EqualFold(s, "true"):
		return true, true
	case ok && strings.EqualFold(s, "false"):
		return false, true
	}
	return nil, false
}

// intType is an integer of at least min. With none, the value 0 means not set, and its text is "none".
type intType struct {
	min  int
	max  int // 0: there is no limit
	none bool
}

// noneText is how an intType that is not set is written.
const noneText = "none"

func (intType) name() string { return "int" }

func (t intType) allowed() string {
	s := fmt.Sprintf("an integer of at least %d", t.min)
	if t.max > 0 {
		s = fmt.Sprintf("an integer from %d to %d", t.min, t.max)
	}
	if t.none {
		s += ", or " + noneText
	}
	return s
}

func (t intType) format(v any) string {
	if t.none && v == 0 {
		return noneText
	}
	return strconv.Itoa(v.(int))
}

func (t intType) convert(given any) (any, bool) {
	if s, ok := text(given); ok && t.none && strings.EqualFold(s, noneText) {
		return 0, true
	}
	n, ok := integer(given)
	if !ok || n < int64(t.min) || n > math.MaxInt || t.max > 0 && n > int64(t.max) {
		return nil, false
	}
	return int(n), true
}

// enumType is one of a few words, in any case. Where "" is one of them it comes first, and means off.
type enumType []string

func (enumType) name() string        { return "string" }
func (t enumType) allowed() string   { return either(t) }
func (enumType) format(v any) string { return v.(string) }

func (t enumType) convert(given any) (any, bool) {
	s, ok := text(given)
	if !ok {
		// Types of other packages that are not strings but print as one of the words, such as a dtype.
		if _, ok := given.(fmt.Stringer); !ok {
			return nil, false
		}
		s = fmt.Sprint(given) // unlike String itself, it survives a nil receiver
	}
	for _, word := range t {
		if strings.EqualFold(s, word) {
			return word, true
		}
	}
	return nil, false
}

// textType is any text, such as the name of a file.
type textType struct{ what string }

func (textType) name() string        { return "string" }
func (t textType) allowed() string   { return t.what }
func (textType) format(v any) string { return v.(string) }

func (textType) convert(given any) (any, bool) {
	s, ok := text(given)
	return s, ok
}

// lossScaleType is a LossScale: the word dynamic, or a number.
type lossScaleType struct{}

func (lossScaleType) name() string        { return `"dynamic" or number` }
func (lossScaleType) allowed() string     { return `"dynamic" or a number from 2^-126 to 2^126` }
func (lossScaleType) format(v any) string { return v.(LossScale).String() }

func (lossScaleType) convert(given any) (any, bool) {
	if scale, ok := given.(LossScale); ok {
		if scale.Dynamic {
			return scale, scale.Value == 0
		}
		given = scale.Value
	}
	if s, ok := text(given); ok && strings.EqualFold(s, dynamic) {
		return LossScale{Dynamic: true}, true
	}
	f, ok := number(given)
	if !ok || !(f >= 0x1p-126 && f <= 0x1p126) { // float32 has it, and its inverse
		return nil, false
	}
	return LossScale{Value: f}, true
}

// durationType is a positive time.Duration; plain numbers are seconds.
type durationType struct{}

func (durationType) name() string { return "duration" }
func (durationType) allowed() string {
	return "a positive duration such as 90s or 5m, or a number of seconds"
}

func (durationType) format(v any) string {
	s := v.(time.Duration).String()
	for _, unit := range []string{"m0s", "h0m"} { // 5m0s and 2h0m0s read better as 5m and 2h
		if strings.HasSuffix(s, unit) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func (durationType) convert(given any) (any, bool) {
	d, ok := given.(time.Duration)
	if !ok {
		if s, isText := text(given); isText {
			var err error
			d, err = time.ParseDuration(s)
			ok = err == nil
		}
	}
	if !ok {
		seconds, isNumber := number(given)
		nanos := math.Round(seconds * float64(time.Second))
		if !isNumber || nanos <= 0 || nanos >= math.MaxInt64 {
			return nil, false
		}
		d = time.Duration(nanos)
	}
	return d, d > 0
}

// text returns a string of any string type, without surrounding space.
func text(given any) (string, bool) {
	v := reflect.ValueOf(given)
	if v.Kind() != reflect.String {
		return "", false
	}
	return strings.TrimSpace(v.String()), true
}

// integer returns a whole number of any numeric type, or one spelled in decimal.
func integer(given any) (int64, bool) {
	if _, ok := given.(time.Duration); ok {
		return 0, false // a count of nanoseconds is never what was meant
	}
	switch v := reflect.ValueOf(given); v.Kind() {
	case reflect.String:
		s, _ := text(given)
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int(), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return int64(v.Uint()), v.Uint() <= math.MaxInt64
	case reflect.Float32, reflect.Float64:
		f := v.Float()
		return int64(f), f == math.Trunc(f) && math.Abs(f) < 1<<63
	}
	return 0, false
}

// number returns a finite number of any numeric type, or one that is spelled.
func number(given any) (float64, bool) {
	var f float64
	switch v := reflect.ValueOf(given); v.Kind() {
	case reflect.String:
		s, _ := text(given)
		var err error
		if f, err = strconv.ParseFloat(s, 64); err != nil {
			return 0, false
		}
	case reflect.Float32, reflect.Float64:
		f = v.Float()
	default:
		n, ok := integer(given)
		if !ok {
			return 0, false
		}
		f = float64(n)
	}
	return f, !math.IsNaN(f) && !math.IsInf(f, 0)
}

// either lists words for a sentence: "a", "b" or "c".
func either(words []string) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(w))
	}
	return b.String()
}
