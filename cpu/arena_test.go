// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"testing"
	"unsafe"
)

// The memory that is prepared while other programs run is that of the program it is for; others neither wait for it nor take it.
func TestAnArenaIsPreparedForTheProgramThatIsCompiled(t *testing.T) {
	const large, small = 3 << 20, 2 << 20
	var a arena
	a.expect(small)
	a.expect(large)
	a.expect(small)
	prepared := <-a.coming
	if len(prepared) != large {
		t.Fatalf("%d bytes are prepared, not %d", len(prepared), large)
	}
	a.grow(small) // nobody gives it what is prepared: it would wait for ever
	if len(a.bytes) != small {
		t.Errorf("a small program has %d bytes, not %d", len(a.bytes), small)
	}
	a.coming <- prepared
	a.grow(large)
	if unsafe.SliceData(a.bytes) != unsafe.SliceData(prepared) {
		t.Error("the large program does not have the memory that was prepared for it")
	}
	if a.expect(2 * large); a.coming != nil {
		t.Error("memory is prepared beside an arena that is in use")
	}
	if a.grow(2 * large); len(a.bytes) != 2*large {
		t.Errorf("a larger program has %d bytes, not %d", len(a.bytes), 2*large)
	}
	a.free()
	if a.expect(4 * large); a.bytes != nil || a.coming != nil {
		t.Error("a device that is finalized has memory")
	}
}
