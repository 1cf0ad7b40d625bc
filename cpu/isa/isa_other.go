//go:build !amd64

package isa

// Best is the highest level that this CPU has.
func Best() Level { return Portable }
