// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checked

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// update adds data to a CRC-32C, as crc32.Update does.
func update(sum uint32, data []byte) uint32 {
	sum, done := fold(sum, data)
	return crc32.Update(sum, castagnoli, data[done:])
}
