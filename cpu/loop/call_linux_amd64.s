// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func call(code []byte, x *Args)
TEXT ·call(SB), NOSPLIT, $8-32
	MOVQ code_base+0(FP), AX
	MOVQ x+24(FP), DI
	CALL AX
	RET
