// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/pjrt/internal/capi"
)

// goValues copies an array of PJRT_NamedValue. Values of unknown kinds are left out.
func goValues(p unsafe.Pointer, n uintptr) map[string]any {
	values := make(map[string]any, n)
	for i := range n {
		if i > 0 {
			p = unsafe.Add(p, max((*capi.NamedValue)(p).StructSize, unsafe.Sizeof(capi.NamedValue{}))) // a newer plugin's are longer
		}
		v := (*capi.NamedValue)(p)
		name := cString(v.Name, v.NameSize)
		switch v.Type {
		case capi.NamedValueKString:
			values[name] = cString(cPointer(uintptr(v.Value)), v.ValueSize)
		case capi.NamedValueKInt64:
			values[name] = int64(v.Value)
		case capi.NamedValueKInt64List:
			values[name] = slices.Clone(cSlice[int64](cPointer(uintptr(v.Value)), v.ValueSize))
		case capi.NamedValueKFloat:
			values[name] = math.Float32frombits(uint32(v.Value))
		case capi.NamedValueKBool:
			values[name] = byte(v.Value) != 0
		}
	}
	return values
}

// cValues makes an array of PJRT_NamedValue, in the order of the names.
func cValues(pin *runtime.Pinner, values map[string]any) (unsafe.Pointer, uintptr, error) {
	list := make([]capi.NamedValue, 0, len(values))
	for _, name := range sortedKeys(values) {
		v := capi.NamedValue{Name: pinnedString(pin, name), NameSize: uintptr(len(name)), ValueSize: 1}
		v.SetSize()
		switch x := values[name].(type) {
		case string:
			v.Type, v.Value, v.ValueSize = capi.NamedValueKString, uint64(uintptr(pinnedString(pin, x))), uintptr(len(x))
		case int:
			v.Type, v.Value = capi.NamedValueKInt64, uint64(x)
		case int64:
			v.Type, v.Value = capi.NamedValueKInt64, uint64(x)
		case []int64:
			v.Type, v.Value, v.ValueSize = capi.NamedValueKInt64List, uint64(uintptr(pinned(pin, slices.Clone(x)))), uintptr(len(x))
		case float32:
			v.Type, v.Value = capi.NamedValueKFloat, uint64(math.Float32bits(x))
		case bool:
			v.Type = capi.NamedValueKBool
			if x {
				v.Value = 1
			}
		default:
			return nil, 0, errors.Errorf("pjrt: option %s is a %T; options are string, int, int64, []int64, float32 or bool", name, x)
		}
		list = append(list, v)
	}
	return pinned(pin, list), uintptr(len(list)), nil
}
