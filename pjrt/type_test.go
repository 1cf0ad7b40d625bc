// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/pjrt"
)

// Who has a dtype of GoMLX needs no table to get a type.
func TestTypesHaveTheNumbersOfGoMLX(t *testing.T) {
	for dtype, want := range map[dtypes.DType]pjrt.Type{
		dtypes.Bool: pjrt.Bool, dtypes.Int8: pjrt.S8, dtypes.Int16: pjrt.S16, dtypes.Int32: pjrt.S32, dtypes.Int64: pjrt.S64,
		dtypes.Uint8: pjrt.U8, dtypes.Uint16: pjrt.U16, dtypes.Uint32: pjrt.U32, dtypes.Uint64: pjrt.U64,
		dtypes.Float16: pjrt.F16, dtypes.Float32: pjrt.F32, dtypes.Float64: pjrt.F64, dtypes.BFloat16: pjrt.BF16,
		dtypes.Complex64: pjrt.C64, dtypes.Complex128: pjrt.C128,
	} {
		if got := pjrt.Type(dtype); got != want || got.Size() != dtype.Size() {
			t.Errorf("%s is %s of %d bytes, not %s of %d", dtype, got, got.Size(), want, dtype.Size())
		}
	}
	for _, small := range []pjrt.Type{pjrt.S4, pjrt.U4, pjrt.F4E2M1FN, pjrt.F8E8M0FNU, pjrt.Type(dtypes.F8E5M2), pjrt.Type(dtypes.F8E4M3FN)} {
		if small.Size() != 1 {
			t.Errorf("%s takes %d bytes on the host", small, small.Size())
		}
	}
	if got := pjrt.Type(99).String(); got != "type 99" {
		t.Error(got)
	}
	if got := pjrt.Code(99).String(); got != "code 99" {
		t.Error(got)
	}
}
