// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checked

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"
)

func TestSumsAreThoseOfPackageCRC32(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	all := random(rng, 70_000)
	for i := range 3000 {
		from, size := rng.IntN(200), i
		if i > 2000 {
			size = rng.IntN(len(all) - from)
		}
		data, before := all[from:from+size], rng.Uint32()
		if got, want := update(before, data), crc32.Update(before, castagnoli, data); got != want {
			t.Fatalf("%d bytes from %d after %08x: %08x, want %08x", size, from, before, got, want)
		}
	}
}

// BenchmarkSum measures a CRC-32C. Its peer is package crc32; the two alternate.
func BenchmarkSum(b *testing.B) {
	for _, size := range []int{4 << 10, 128 << 10} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			data := random(rand.New(rand.NewPCG(7, 8)), size)
			var took [2]time.Duration
			var sums [2]uint32
			for range b.N {
				start := time.Now()
				sums[0] = update(sums[0], data)
				between := time.Now()
				sums[1] = crc32.Update(sums[1], castagnoli, data)
				took[0] += between.Sub(start)
				took[1] += time.Since(between)
			}
			if sums[0] != sums[1] {
				b.Fatal("other sums")
			}
			b.ReportMetric(float64(size)*float64(b.N)/took[0].Seconds()/1e9, "GB/s")
			b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
		})
	}
}
