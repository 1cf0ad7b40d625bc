// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// devicesType is a list of different device indices, written with commas; "" is the empty list.
type devicesType struct{}

func (devicesType) name() string { return "string" }
func (devicesType) allowed() string {
	return `a list of different device indices such as "0,2", or "" for all`
}
func (devicesType) format(v any) string { return v.(string) }

func (devicesType) convert(given any) (any, bool) {
	s, ok := text(given)
	if !ok {
		if s, ok = indices(given); !ok {
			return nil, false
		}
	}
	devices, ok := parseDevices(s)
	if !ok {
		return nil, false
	}
	canonical, _ := indices(devices)
	return canonical, true
}

// parseDevices reads a list of device indices.
func parseDevices(s string) ([]int, bool) {
	if strings.TrimSpace(s) == "" {
		return nil, true
	}
	var devices []int
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 0 || slices.Contains(devices, n) {
			return nil, false
		}
		devices = append(devices, n)
	}
	return devices, true
}

// indices writes one integer or a slice of them with commas.
func indices(given any) (string, bool) {
	if n, ok := integer(given); ok {
		return strconv.FormatInt(n, 10), true
	}
	v := reflect.ValueOf(given)
	if v.Kind() != reflect.Slice {
		return "", false
	}
	parts := make([]string, v.Len())
	for i := range parts {
		n, ok := integer(v.Index(i).Interface())
		if !ok {
			return "", false
		}
		parts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(parts, ","), true
}
