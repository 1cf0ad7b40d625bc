// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

import "errors"

func fileSystemSize(string) (int64, error) { return 0, errors.ErrUnsupported }

func clockSynced() (synchronised, known bool) { return false, false }
