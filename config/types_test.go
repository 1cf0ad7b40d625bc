// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"
)

type (
	myInt    int
	myString string
	myBool   bool
	myDType  int // prints as a word of amp.dtype, as the dtypes of a tensor library do
)

func (t myDType) String() string { return []string{"Float16", "BFloat16"}[t] }

func TestConversions(t *testing.T) {
	count, none, word, onOff := intType{min: 1}, intType{min: 1, none: true}, enumType{"", "v0"}, boolType{}
	dtype := enumType{Float16, BFloat16}
	memory, wait, scale, devices := bytesType{}, durationType{}, lossScaleType{}, devicesType{}
	refused := struct{}{} // convert says no
	for _, test := range []struct {
		typ   valueType
		given any
		want  any
	}{
		{count, 3, 3}, {count, int8(3), 3}, {count, uint64(3), 3}, {count, float32(3), 3}, {count, myInt(3), 3},
		{count, " 3 ", 3}, {count, json.Number("3"), 3}, {count, math.MaxInt, math.MaxInt},
		{count, 0, refused}, {count, -1, refused}, {count, 2.5, refused}, {count, math.NaN(), refused},
		{count, math.Inf(1), refused}, {count, 1e30, refused}, {count, uint64(math.MaxUint64), refused},
		{count, "2.0", refused}, {count, "0x10", refused}, {count, "", refused}, {count, "99999999999999999999", refused},
		{count, true, refused}, {count, nil, refused}, {count, new(int), refused}, {count, time.Second, refused},
		{count, "none", refused}, {none, "none", 0}, {none, "NONE", 0}, {none, 0, refused}, {none, 1, 1},

		{onOff, true, true}, {onOff, myBool(true), true}, {onOff, "TRUE", true}, {onOff, "fAlse", false},
		{onOff, "1", refused}, {onOff, "t", refused}, {onOff, "yes", refused}, {onOff, 1, refused}, {onOff, nil, refused},

		{word, "V0", "v0"}, {word, " v0\n", "v0"}, {word, myString("v0"), "v0"}, {word, "", ""},
		{word, "v1", refused}, {word, 0, refused}, {word, nil, refused},
		{dtype, myDType(1), "bfloat16"}, {dtype, myDType(7), refused}, {dtype, (*time.Time)(nil), refused},

		{memory, 0, int64(0)}, {memory, "0", int64(0)}, {memory, 1 << 40, int64(1 << 40)}, {memory, 2e9, int64(2e9)},
		{memory, "512MB", int64(512e6)}, {memory, "512mb", int64(512e6)}, {memory, "2GiB", int64(2 << 30)},
		{memory, "1.5g", int64(15e8)}, {memory, "1.5 GB", int64(15e8)}, {memory, "1gi", int64(1 << 30)},
		{memory, "16k", int64(16e3)}, {memory, "7B", int64(7)}, {memory, "1.1TB", int64(11e11)}, {memory, "0.1KiB", int64(102)},
		{memory, "0.3b", refused}, {memory, -1, refused}, {memory, "-1", refused}, {memory, "1e9", refused},
		{memory, 0.5, refused}, {memory, "GB", refused}, {memory, "1.GB", refused}, {memory, "1PB", refused}, {memory, "", refused},
		{memory, "99999999TB", refused}, {memory, "1/3", refused}, {memory, time.Second, refused}, {memory, nil, refused},

		{wait, time.Minute, time.Minute}, {wait, "1m30s", 90 * time.Second}, {wait, 90, 90 * time.Second},
		{wait, 0.25, 250 * time.Millisecond}, {wait, "0.25", 250 * time.Millisecond}, {wait, uint8(2), 2 * time.Second},
		{wait, 0, refused}, {wait, "0", refused}, {wait, -time.Second, refused}, {wait, "-1s", refused}, {wait, -1e300, refused},
		{wait, 1e300, refused}, {wait, 1e-30, refused}, {wait, "soon", refused}, {wait, "", refused}, {wait, nil, refused},
		{wait, math.NaN(), refused}, {wait, "inf", refused},

		{scale, "Dynamic", LossScale{Dynamic: true}}, {scale, LossScale{Dynamic: true}, LossScale{Dynamic: true}},
		{scale, 1024, LossScale{Value: 1024}}, {scale, "0.5", LossScale{Value: 0.5}}, {scale, float32(2), LossScale{Value: 2}},
		{scale, LossScale{Value: 8}, LossScale{Value: 8}},
		{scale, LossScale{}, refused}, {scale, LossScale{Dynamic: true, Value: 1}, refused}, {scale, 0, refused},
		{scale, -1.0, refused}, {scale, "static", refused}, {scale, "NaN", refused}, {scale, "1e999", refused},
		{scale, math.Inf(1), refused}, {scale, true, refused}, {scale, nil, refused}, {scale, time.Second, refused},

		{devices, "", ""}, {devices, " ", ""}, {devices, "0", "0"}, {devices, " 2, 0 ", "2,0"}, {devices, "007", "7"},
		{devices, 1, "1"}, {devices, []int{2, 0}, "2,0"}, {devices, []any{1, "3"}, "1,3"}, {devices, []int(nil), ""},
		{devices, "0,0", refused}, {devices, "0,", refused}, {devices, "-1", refused}, {devices, "a", refused},
		{devices, "0 1", refused}, {devices, -1, refused}, {devices, []int{1, 1}, refused}, {devices, []any{nil}, refused},
		{devices, 1.5, refused}, {devices, true, refused}, {devices, nil, refused},
	} {
		t.Run(fmt.Sprintf("%T %T %.20v", test.typ, test.given, test.given), func(t *testing.T) {
			got, ok := test.typ.convert(test.given)
			if test.want == refused {
				if ok {
					t.Errorf("accepted as %v", got)
				}
				return
			}
			if !ok || got != test.want {
				t.Fatalf("got %v (%T), %t, want %v (%T)", got, got, ok, test.want, test.want)
			}
			if back, ok := test.typ.convert(test.typ.format(got)); !ok || back != got {
				t.Errorf("its text %q reads as %v, %t", test.typ.format(got), back, ok)
			}
		})
	}
}

func TestValuesPrintInTheirShortestUnit(t *testing.T) {
	for _, test := range []struct {
		typ   valueType
		value any
		want  string
	}{
		{bytesType{}, int64(0), "0"}, {bytesType{}, int64(2 << 30), "2GiB"}, {bytesType{}, int64(512e6), "512MB"},
		{bytesType{}, int64(1025), "1025"}, {bytesType{}, int64(1 << 41), "2TiB"},
		{durationType{}, 5 * time.Minute, "5m"}, {durationType{}, 2 * time.Hour, "2h"}, {durationType{}, 10 * time.Second, "10s"},
		{durationType{}, 90 * time.Second, "1m30s"}, {durationType{}, 100 * time.Minute, "1h40m"}, {durationType{}, 20 * time.Minute, "20m"},
		{lossScaleType{}, LossScale{Dynamic: true}, "dynamic"}, {lossScaleType{}, LossScale{Value: 1 << 20}, "1048576"},
		{lossScaleType{}, LossScale{Value: 0.5}, "0.5"},
		{intType{min: 1, none: true}, 0, "none"}, {intType{min: -1}, -1, "-1"}, {boolType{}, true, "true"},
	} {
		if got := test.typ.format(test.value); got != test.want {
			t.Errorf("%v: %q, want %q", test.value, got, test.want)
		}
	}
}
