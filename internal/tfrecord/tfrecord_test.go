// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tfrecord

import (
	"encoding/hex"
	"testing"
)

// An empty record, as TensorFlow writes it.
func TestAnEmptyRecordHasTheBytesOfTensorFlow(t *testing.T) {
	if got := hex.EncodeToString(Append(nil, nil)); got != "0000000000000000"+"29039807"+"d8ea82a2" {
		t.Errorf("it is %s", got)
	}
}
