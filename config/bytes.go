// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// bytesType is an amount of memory that is not negative: a number with or without a unit. Only an "i" makes a unit
// binary: 1g is 1GB is 10^9, 1gi is 1GiB is 2^30.
type bytesType struct{}

// byteUnits are in the order in which format tries them: what divides an amount and leaves the smallest number.
var byteUnits = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"TB", 1e12},
	{"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6},
	{"KiB", 1 << 10}, {"KB", 1e3},
}

// bytesText bounds the number of digits, so that exact arithmetic on them stays cheap.
var bytesText = regexp.MustCompile(`^([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-zA-Z]*)$`)

func (bytesType) name() string    { return "bytes" }
func (bytesType) allowed() string { return "a number of bytes such as 512MB, 2GiB, 1.5g or 0" }

func (bytesType) format(v any) string {
	n := v.(int64)
	for _, u := range byteUnits {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

func (bytesType) convert(given any) (any, bool) {
	s, ok := text(given)
	if !ok {
		n, ok := integer(given)
		return n, ok && n >= 0
	}
	match := bytesText.FindStringSubmatch(s)
	if match == nil {
		return nil, false
	}
	unit, ok := byteUnit(match[2])
	amount, isNumber := new(big.Rat).SetString(match[1])
	if !ok || !isNumber {
		return nil, false
	}
	amount.Mul(amount, new(big.Rat).SetInt64(unit))
	whole := new(big.Int).Quo(amount.Num(), amount.Denom()) // rounds down: a limit must not grow
	if !whole.IsInt64() || (whole.Sign() == 0 && amount.Sign() != 0) {
		return nil, false // part of a byte would become 0, which means something else: no limit
	}
	return whole.Int64(), true
}

// ParseBytes reads an amount of memory as the configuration does: 512MB, 2GiB, 1.5g.
func ParseBytes(text string) (n int64, ok bool) {
	v, ok := bytesType{}.convert(text)
	if ok {
		n = v.(int64)
	}
	return n, ok
}

// FormatBytes writes an amount of memory so that [ParseBytes] reads it.
func FormatBytes(n int64) string { return bytesType{}.format(n) }

// byteUnit returns the size of a unit, in any case, with or without its "B".
func byteUnit(s string) (int64, bool) {
	if s == "" || strings.EqualFold(s, "b") {
		return 1, true
	}
	for _, u := range byteUnits {
		if strings.EqualFold(s, u.name) || strings.EqualFold(s, strings.TrimSuffix(u.name, "B")) {
			return u.size, true
		}
	}
	return 0, false
}
