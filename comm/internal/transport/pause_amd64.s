// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func pause()
TEXT ·pause(SB), NOSPLIT, $0-0
	PAUSE
	RET
