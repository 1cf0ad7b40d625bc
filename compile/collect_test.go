// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func gogc() int {
	x := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(x)
	return int(x[0].Value.Uint64())
}

func TestTheCollectorRunsLessOftenWhileLittleLives(t *testing.T) {
	t.Setenv("GOGC", "") // as if nobody had set it
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	other := collectLess()
	restore := collectLess()
	other()
	if got := gogc(); got != 400 {
		t.Errorf("%d%% at first", got)
	}
	large := make([]byte, 400<<20) // 1 GiB is 2.5 times as much
	for range 100 {
		runtime.GC()
		if gogc() < 200 {
			break
		}
		time.Sleep(10 * time.Millisecond) // cleanups run beside
	}
	if got := gogc(); got < 100 || got > 160 {
		t.Errorf("%d%% with 400 MiB", got)
	}
	runtime.KeepAlive(large)
	restore()
	runtime.GC()
	if got := gogc(); got != 77 {
		t.Errorf("%d%% after that", got)
	}
}
