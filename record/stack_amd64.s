// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func returns(pcs *[64]uintptr) (n int)
//
// It follows the saved frame pointers: at each is that of the caller, and after it where the call returns to. The runtime moves no stack while a function in assembly runs.
TEXT ·returns(SB), NOSPLIT, $0-16
	MOVQ pcs+0(FP), DI
	MOVQ BP, SI
	XORQ AX, AX
loop:
	CMPQ AX, $64
	JGE  done
	MOVQ 8(SI), CX
	MOVQ CX, (DI)(AX*8)
	INCQ AX
	MOVQ (SI), CX
	TESTQ CX, CX
	JZ   done
	// Callers' frames are above, and not far. Anything else is no frame pointer.
	MOVQ CX, DX
	SUBQ SI, DX
	CMPQ DX, $16
	JB   broken
	CMPQ DX, $(1<<20)
	JA   broken
	TESTQ $7, CX
	JNZ  broken
	MOVQ CX, SI
	JMP  loop
broken:
	MOVQ $-1, AX
done:
	MOVQ AX, n+8(FP)
	RET
