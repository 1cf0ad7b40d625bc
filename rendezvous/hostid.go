// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
)

// hostID is equal for workers that can share memory: same machine, same /dev/shm, same user; and same name, so that one
// machine can play several.
func hostID(host string) string {
	return digest("host", machineID(), strconv.FormatUint(sharedMemory(), 10), strconv.Itoa(os.Getuid()), host)
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}
