// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"strings"
	"time"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
)

// Profile is what a kind of device can do. It is a file that users can add: see [Find].
type Profile struct {
	Name   string
	Source string // where the numbers are from
	// Memory is the bytes that a program can have; 0: they are not limited.
	Memory int64
	// Bandwidth of the memory is in bytes per second, sustained: a copy reads and writes.
	Bandwidth float64
	// Launch is what it takes to start a kernel: an op, or ops that are fused.
	Launch time.Duration
	// Segment is what it takes to start a segment: an instruction of a device's list.
	Segment time.Duration
	// Rates are flops per second by family and type, "dot/float32", and by flops of the kernel. See [Profile.Rate] for those that are missing.
	Rates map[string]Rate
	// Tile is how many rows and columns of a product the device computes at a time: a smaller product takes as long; 0: any.
	Tile [2]int64
	// Fuses: elementwise ops and reductions that follow each other are one kernel, which reads its inputs once and writes what others read.
	Fuses bool
	// Cores is how many cores of a host its devices share; 0: each device is a processor of its own. Then rates and bandwidth are those of a device
	// that has one core, while others are busy: see [Profile.On].
	Cores int
	// Teams are what a device can do that has so many cores: launch, segment, bandwidth and rates are their own.
	Teams map[int]*Profile
	// Within usually connects the devices of a worker, Inside the workers of a host, and Between hosts; nil: it is not said, and Within is Inside.
	Within, Inside, Between *Link
}

// The families of ops that have rates of their own.
const (
	Dot         = "dot"
	Conv        = "conv"
	Attention   = "attention"
	Elementwise = "elementwise" // in additions: see the table of weights
	Loop        = "loop"        // elementwise, in kernels that are nothing but plain arithmetic
	Reduce      = "reduce"
	Math        = "math" // elementwise functions: Exp, Tanh, Erf
	Random      = "random"
	Move        = "move"   // gathers, scatters, sorts, windows, paddings
	Rows        = "rows"   // short rows per second: what it takes to begin one
	Pack        = "pack"   // bytes of what products multiply per second, where they are packed first
	Memory      = "memory" // bytes per second by bytes, where caches make small ones faster than Bandwidth
)

// Families are all of them.
var Families = []string{Dot, Conv, Attention, Elementwise, Loop, Math, Reduce, Random, Move, Rows, Pack, Memory}

// fallbacks are the families whose rates stand in for those that a profile lacks.
var fallbacks = map[string]string{Conv: Dot, Attention: Dot, Loop: Elementwise, Math: Elementwise, Reduce: Elementwise, Random: Elementwise, Move: Elementwise}

// Default is a virtual CPU device of the pure-Go backend, roughly: its matrix products on one core of a current server, and memory that
// other devices use too. Parts of a program are compared on it; only the ratios matter.
var Default = Flat(20e9, 8e9, time.Microsecond)

// Flat is a device that does everything at the same rate: to compare parts of a program, and for tests.
func Flat(flops, bandwidth float64, launch time.Duration) *Profile {
	return &Profile{Name: "flat", Bandwidth: bandwidth, Launch: launch, Rates: map[string]Rate{Dot: Constant(flops), Elementwise: Constant(flops)}}
}

// Rate is what the device sustains of a family of ops, in flops per second: what the profile says of the family and type, else of the family in
// float32, else of the family whatever the type; else the same of the family that stands in for it (dot for conv and attention, elementwise
// for the others). It is 0 if the profile does not say: memory alone limits them.
func (p *Profile) Rate(family string, dtype dtypes.DType, flops float64) float64 {
	of := strings.ToLower(dtype.String())
	for ; family != ""; family = fallbacks[family] {
		for _, key := range [...]string{family + "/" + of, family + "/float32", family} {
			if r, ok := p.Rates[key]; ok {
				return r.At(flops)
			}
		}
	}
	return 0
}

// Threads is how many cores each of so many devices of a host has: they divide them, and each has at least one.
func (p *Profile) Threads(devices int) int { return max(1, p.Cores/max(devices, 1)) }

// On is what a device does that has so many cores: the profile that was measured for that, or for fewer, and how many times as fast as that it is.
func (p *Profile) On(threads int) (q *Profile, faster float64) {
	q, most := p, 1
	for n, team := range p.Teams {
		if n <= threads && n > most {
			q, most = team, n
		}
	}
	return q, float64(max(threads, 1)) / float64(most)
}

// Op is how long the device takes for an op alone: it computes and reads memory at the same time.
func (p *Profile) Op(op *ir.Op) time.Duration {
	if op.IsLeaf() || renames[op.Type()] {
		return 0
	}
	c := Of(op)
	return p.Launch + p.kernel(Family(op), op.Outputs[0].Shape.DType, float64(c.Flops), float64(c.Bytes()))
}

// kernel is how long the device takes once it has started.
func (p *Profile) kernel(family string, dtype dtypes.DType, flops, bytes float64) time.Duration {
	s := p.memory(bytes)
	if rate := p.Rate(family, dtype, flops); rate > 0 {
		s = max(s, flops/rate)
	}
	return seconds(s)
}

// Ops is how long the device takes for a segment: its kernels one after the other. Shapes are those of one device, as in a segment that
// was lowered.
func (p *Profile) Ops(s *ir.Segment) time.Duration {
	total := p.Segment
	for _, k := range Kernels(s, p.Fuses) {
		total += p.Kernel(k)
	}
	return total
}

// Kernel is how long a kernel takes: it computes and reads memory at the same time. A CPU does one after the other, but for plain arithmetic in one loop: it packs what products
// and convolutions multiply, and a group that is no loop goes through tiles of it op by op.
func (p *Profile) Kernel(k *Kernel) time.Duration {
	s := 0.0
	add := func(family string, flops, size int64) {
		if flops > 0 {
			if rate := p.Rate(family, k.DType, float64(size)); rate > 0 {
				s += float64(flops) / rate
			}
		}
	}
	add(k.Family, k.Flops, k.Size)
	s /= p.Filled(k.M, k.N)
	plain := Loop
	if k.Broken {
		plain = Elementwise
	}
	add(plain, k.Work, k.Work)
	add(Math, k.Math, k.Math)
	add(Reduce, k.Sums, k.Sums)
	if r, ok := p.Rates[Rows]; ok && k.Rows > 0 {
		s += float64(k.Rows) / r.At(float64(k.Rows))
	}
	if r, ok := p.Rates[Pack]; ok && k.Operands > 0 {
		s += float64(k.Operands) / r.At(float64(k.Operands))
	}
	memory := p.memory(float64(k.Read + k.Written))
	if p.Cores > 0 && (k.Flops > 0 || k.Broken) {
		return p.Launch + seconds(s+memory)
	}
	return p.Launch + seconds(max(s, memory))
}

// Roofline is the least time in which a device with so many cores computes so many flops and touches so many bytes: by the peak of its products in
// float32, and by its memory, of which caches make small parts faster.
func (p *Profile) Roofline(threads int, flops, bytes float64) time.Duration {
	q, faster := p.On(threads)
	peak := 0.0
	for _, key := range []string{Dot + "/float32", Dot} {
		for _, point := range q.Rates[key] {
			peak = max(peak, point.PerSecond)
		}
	}
	s := q.memory(bytes)
	if peak > 0 {
		s = max(s, flops/(peak*faster))
	}
	return seconds(s)
}

// Filled is the part of its tiles that a product fills.
func (p *Profile) Filled(m, n int64) float64 {
	part := 1.0
	for i, x := range []int64{m, n} {
		if tile := p.Tile[i]; tile > 0 && x > 0 {
			part *= float64(x) / float64((x+tile-1)/tile*tile)
		}
	}
	return part
}

// memory is how many seconds it takes to read and write so many bytes: what is small may be in caches.
func (p *Profile) memory(bytes float64) float64 {
	if bytes == 0 {
		return 0
	}
	if r, ok := p.Rates[Memory]; ok {
		return bytes / r.At(bytes)
	}
	return bytes / p.Bandwidth
}

// Family is the family of an op.
func Family(op *ir.Op) string {
	switch op.Attrs.(type) {
	case *ir.DotGeneral, *ir.FusedDense, *ir.FusedQuantizedDense, *ir.FusedAttentionQKVProjection:
		return Dot
	case *ir.ConvGeneral:
		return Conv
	case *ir.FusedScaledDotProductAttention, *ir.FusedScaledDotProductAttentionVJP:
		return Attention
	case *ir.RNGBitGenerator:
		return Random
	case *ir.Gather, *ir.ScatterSum, *ir.ScatterMax, *ir.ScatterMin, *ir.Sort, *ir.ReduceWindow, *ir.SelectAndScatterMax, *ir.SelectAndScatterMin, *ir.FFT:
		return Move
	}
	if _, ok := perInput[op.Type()]; ok {
		return Reduce
	}
	if moves[op.Type()] {
		return Move
	}
	if weights[op.Type()] >= exp {
		return Math
	}
	return Elementwise
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
