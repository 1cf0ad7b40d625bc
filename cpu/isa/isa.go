// Package isa tells which instructions the kernels of the CPU engine may use.
package isa

import "fmt"

// Level is an instruction set, as far as kernels care.
type Level int

// The levels; each has what those before it have.
const (
	Portable Level = iota // Go
	AVX2                  // with FMA
	AVX512                // F, BW, DQ and VL
)

// String returns the level's name.
func (l Level) String() string {
	switch l {
	case Portable:
		return "portable"
	case AVX2:
		return "AVX2"
	case AVX512:
		return "AVX-512"
	}
	return fmt.Sprintf("level %d", int(l))
}
