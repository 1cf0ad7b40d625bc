//go:build !linux

package comm

import (
	"unsafe"

	"github.com/pkg/errors"
)

// Memory is shared on Linux only. Elsewhere workers of one host use connections.

func newShmEngine(t *team, instead func(*team) engine) engine { return instead(t) }

var heap sharedHeap

type sharedHeap struct{}

func (sharedHeap) alloc(int) (unsafe.Pointer, error) {
	return nil, errors.New("epl: memory is shared on Linux only")
}
func (sharedHeap) release(unsafe.Pointer, int) {}
