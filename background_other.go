//go:build !linux

package epl

// background is for systems whose threads have priorities of their own.
func background() {}
