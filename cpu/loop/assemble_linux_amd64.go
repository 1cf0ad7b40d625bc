// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/easyparallel/epl/cpu/isa"
)

// The general registers of a loop, by number.
const (
	rax = 0 // passing
	rcx = 1 // bytes of the row that are done
	rdx = 2 // bytes of the whole registers of a row
	rdi = 7 // args
	k1  = 1 // the mask of the elements after them
)

// streamRegisters hold the pointers of what is read or written in order.
var streamRegisters = [maxStreams]int{3, 6, 8, 9, 10, 11, 12, 13, 14, 15}

// Where args have what code reads.
var (
	atBytes    = int32(unsafe.Offsetof(Args{}.bytes))
	atMask     = int32(unsafe.Offsetof(Args{}.mask))
	atRows     = int32(unsafe.Offsetof(Args{}.rows))
	atPointers = int32(unsafe.Offsetof(Args{}.Pointers))
	atStrides  = int32(unsafe.Offsetof(Args{}.Strides))
)

// ahead is how many bytes before they are needed elements are asked for.
const ahead = 1024

var (
	mu       sync.Mutex
	compiled = map[string]*Func{} // by key: there are few, because a loop does not know its shape
)

// call calls code with args in DI.
//
//go:noescape
func call(code []byte, x *Args)

// Compile makes the loop of a program; nil if there is none.
func Compile(p *Program) *Func {
	if isa.Current() != isa.AVX512 {
		return nil
	}
	key := p.key()
	mu.Lock()
	defer mu.Unlock()
	if f, ok := compiled[key]; ok {
		return f
	}
	compiled[key] = p.compile()
	return compiled[key]
}

func (p *Program) compile() *Func {
	a := assembler{program: p}
	if !a.assemble() {
		return nil
	}
	page, err := unix.Mmap(-1, 0, (len(a.code)+4095)&^4095, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil
	}
	copy(page, a.code)
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		_ = unix.Munmap(page)
		return nil
	}
	return &Func{code: page[:len(a.code)]}
}

// assembler writes the code of a program.
type assembler struct {
	program *Program
	code    []byte
	pointer map[int]int // the general register of an operand, or of a store after the operands, that is no scalar
	vector  []int       // the vector register of every value; -1: none yet, or not any more
	last    []int       // the last instruction that reads a value; -1: none
	free    []int       // vector registers
	sign    int         // the register with the sign bit, and that with all others; -1: not needed
	rest    int
}

// assemble writes the code; false if it has not enough registers.
func (a *assembler) assemble() bool {
	p := a.program
	if !a.registers() {
		return false
	}
	// A row: pointers and scalars are loaded, the index is 0.
	row := len(a.code)
	for i, o := range p.Operands {
		if !o.Scalar {
			a.load64(a.pointer[i], atPointers+8*int32(i))
			continue
		}
		a.load64(rax, atPointers+8*int32(i))
		a.evex(op{m: 2, pp: 1, code: 0x18}, a.vector[i], 0, memory{base: rax, index: -1}, 0, false) // VBROADCASTSS
	}
	for i := range p.Stores {
		n := len(p.Operands) + i
		a.load64(a.pointer[n], atPointers+8*int32(n))
	}
	a.load64(rdx, atBytes)
	a.bytes(0x31, 0xc9)       // XORL CX, CX
	a.bytes(0x48, 0x85, 0xd2) // TESTQ DX, DX
	toTail := a.jump(0x84)    // JZ
	top := len(a.code)
	if !a.body(false) {
		return false
	}
	a.bytes(0x48, 0x83, 0xc1, 0x40) // ADDQ $64, CX
	a.bytes(0x48, 0x39, 0xd1)       // CMPQ CX, DX
	a.back(0x82, top)               // JB
	a.land(toTail)
	a.bytes(0x8b, 0x87) // MOVL mask(DI), AX
	a.imm32(atMask)
	a.bytes(0x85, 0xc0) // TESTL AX, AX
	toEnd := a.jump(0x84)
	a.bytes(0xc5, 0xf8, 0x92, 0xc8) // KMOVW AX, K1
	if !a.body(true) {
		return false
	}
	a.land(toEnd)
	// The next row.
	for i := range len(p.Operands) + len(p.Stores) {
		a.load64(rax, atStrides+8*int32(i))
		a.bytes(0x48, 0x01, 0x87) // ADDQ AX, pointer(DI)
		a.imm32(atPointers + 8*int32(i))
	}
	a.bytes(0x48, 0xff, 0x8f) // DECQ rows(DI)
	a.imm32(atRows)
	a.back(0x85, row)         // JNZ
	a.bytes(0xc5, 0xf8, 0x77) // VZEROUPPER
	a.bytes(0xc3)             // RET
	return true
}

// registers gives pointers, scalars and constants their registers, and finds out how long values live.
func (a *assembler) registers() bool {
	p := a.program
	if len(p.Operands)+len(p.Stores) > maxPointers {
		return false
	}
	for r := 31; r >= 0; r-- {
		a.free = append(a.free, r)
	}
	a.pointer, a.vector = map[int]int{}, make([]int, len(p.Operands)+len(p.Instrs))
	for i := range a.vector {
		a.vector[i] = -1
	}
	for i := range len(p.Operands) + len(p.Stores) {
		switch {
		case i < len(p.Operands) && p.Operands[i].Scalar:
			if a.vector[i] = a.take(); a.vector[i] < 0 {
				return false
			}
		case len(a.pointer) == maxStreams:
			return false
		default:
			a.pointer[i] = streamRegisters[len(a.pointer)]
		}
	}
	a.sign, a.rest = -1, -1
	constant := func(value int32) int {
		r := a.take()
		if r >= 0 {
			a.bytes(0xb8) // MOVL $value, AX
			a.imm32(value)
			a.evex(op{m: 2, pp: 1, code: 0x7c}, r, 0, register(rax), 0, false) // VPBROADCASTD
		}
		return r
	}
	for _, in := range p.Instrs {
		if in.Op == Neg && a.sign < 0 {
			if a.sign = constant(-1 << 31); a.sign < 0 {
				return false
			}
		}
		if in.Op == Abs && a.rest < 0 {
			if a.rest = constant(1<<31 - 1); a.rest < 0 {
				return false
			}
		}
	}
	a.last = make([]int, len(a.vector))
	for i := range a.last {
		a.last[i] = -1
	}
	for i, in := range p.Instrs {
		a.last[in.A] = i
		if Arity(in.Op) == 2 {
			a.last[in.B] = i
		}
	}
	return true
}

// take takes a free vector register; -1: there is none.
func (a *assembler) take() int {
	if len(a.free) == 0 {
		return -1
	}
	r := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	return r
}

// body writes what is done for the elements of a register, or for those under the mask.
func (a *assembler) body(masked bool) bool {
	p := a.program
	operands := len(p.Operands)
	mask := 0
	if masked {
		mask = k1
	} else {
		for i := range operands + len(p.Stores) {
			if r, ok := a.pointer[i]; ok && (i < operands && p.Operands[i].Prefetch || i >= operands && p.Stores[i-operands].Prefetch) {
				a.prefetch(r)
			}
		}
	}
	value := func(n int) bool {
		if a.vector[n] >= 0 {
			return true
		}
		if a.vector[n] = a.take(); a.vector[n] < 0 {
			return false
		}
		a.evex(op{m: 1, code: 0x10}, a.vector[n], 0, memory{base: a.pointer[n], index: rcx}, mask, masked) // VMOVUPS
		return true
	}
	release := func(n, at int) {
		if a.last[n] == at && a.vector[n] >= 0 && (n >= operands || !p.Operands[n].Scalar) {
			a.free = append(a.free, a.vector[n])
			a.vector[n] = -1
		}
	}
	for i, in := range p.Instrs {
		n := operands + i
		o, ok := opcodes[in.Op]
		if !ok {
			return false
		}
		two := Arity(in.Op) == 2
		if !value(in.A) || two && !value(in.B) {
			return false
		}
		x, y := a.vector[in.A], 0
		if two {
			y = a.vector[in.B]
		}
		release(in.A, i)
		if two {
			release(in.B, i)
		}
		d := a.take()
		if d < 0 {
			return false
		}
		a.vector[n] = d
		switch in.Op {
		case Sqrt:
			a.evex(o, d, 0, register(x), 0, false)
		case Neg:
			a.evex(o, d, x, register(a.sign), 0, false)
		case Abs:
			a.evex(o, d, x, register(a.rest), 0, false)
		default:
			a.evex(o, d, x, register(y), 0, false)
		}
		for s, v := range p.Stores {
			if v.Value == n {
				a.evex(op{m: 1, code: 0x11}, d, 0, memory{base: a.pointer[operands+s], index: rcx}, mask, false) // VMOVUPS
			}
		}
		if a.last[n] < 0 {
			a.free = append(a.free, d)
			a.vector[n] = -1
		}
	}
	return true
}

// op is an instruction of vectors: its opcode, and the map and prefix that it belongs to.
type op struct {
	m, pp, code byte
}

// opcodes are those of ops: VADDPS, VSUBPS, VMULPS, VDIVPS, VSQRTPS, and VPXORD and VPANDD with a constant.
var opcodes = map[Op]op{
	Add: {m: 1, code: 0x58}, Sub: {m: 1, code: 0x5c}, Mul: {m: 1, code: 0x59}, Div: {m: 1, code: 0x5e}, Sqrt: {m: 1, code: 0x51},
	Neg: {m: 1, pp: 1, code: 0xef}, Abs: {m: 1, pp: 1, code: 0xdb},
}

// memory is where base and index point to; an index of -1 is none.
type memory struct{ base, index int }

// register is a vector register, or a general one, as the last operand.
type register int

// evex writes an instruction on registers of 64 bytes: d, x and last are its operands, as Intel writes them. Elements that
// are not under the mask are left, or 0.
func (a *assembler) evex(o op, d, x int, last any, mask int, zero bool) {
	bit := func(n, at int) byte { return byte(^n>>at&1) << 7 } // inverted, as the prefix wants it
	var b, xx byte                                             // bits of the last operand
	var tail []byte
	switch l := last.(type) {
	case register:
		b, xx = bit(int(l), 3), bit(int(l), 4)
		tail = []byte{0xc0 | byte(d&7)<<3 | byte(l)&7}
	case memory:
		b, xx = bit(l.base, 3), 1<<7
		mod := byte(0)
		if l.base&7 == 5 { // would mean that there is no base
			mod = 1 << 6
		}
		if l.index < 0 && l.base&7 != 4 {
			tail = []byte{mod | byte(d&7)<<3 | byte(l.base&7)}
		} else {
			index := byte(4) // none
			if l.index >= 0 {
				index = byte(l.index & 7)
				xx = bit(l.index, 3)
			}
			tail = []byte{mod | byte(d&7)<<3 | 4, index<<3 | byte(l.base&7)}
		}
		if mod != 0 {
			tail = append(tail, 0)
		}
	}
	last3 := byte(0b10) << 5 // 64 bytes
	if zero {
		last3 |= 1 << 7
	}
	a.bytes(0x62,
		bit(d, 3)|xx>>1|b>>2|bit(d, 4)>>3|o.m,
		byte(^x&15)<<3|1<<2|o.pp,
		last3|bit(x, 4)>>4|byte(mask),
		o.code)
	a.bytes(tail...)
}

func (a *assembler) bytes(b ...byte) { a.code = append(a.code, b...) }

func (a *assembler) imm32(v int32) { a.code = binary.LittleEndian.AppendUint32(a.code, uint32(v)) }

// load64 loads a general register from args.
func (a *assembler) load64(r int, at int32) {
	a.bytes(0x48|byte(r>>3)<<2, 0x8b, 0x80|byte(r&7)<<3|rdi)
	a.imm32(at)
}

// prefetch asks for the line that is ahead bytes after base and index.
func (a *assembler) prefetch(base int) {
	if base >= 8 {
		a.bytes(0x41)
	}
	a.bytes(0x0f, 0x18, 0x80|1<<3|4, rcx<<3|byte(base&7)) // PREFETCHT0
	a.imm32(ahead)
}

// jump writes a conditional jump forward, for land; back one to what was written.
func (a *assembler) jump(code byte) int {
	a.bytes(0x0f, code)
	a.imm32(0)
	return len(a.code)
}

func (a *assembler) land(from int) {
	binary.LittleEndian.PutUint32(a.code[from-4:], uint32(len(a.code)-from))
}

func (a *assembler) back(code byte, to int) {
	a.bytes(0x0f, code)
	a.imm32(int32(to - (len(a.code) + 4)))
}
