package cost

import (
	"time"

	"github.com/easyparallel/epl/ir"
)

// Machine is what a device and its links can do.
type Machine struct {
	FlopsPerSecond     float64
	BytesPerSecond     float64       // of its memory
	OpTime             time.Duration // what it takes to start an op, however small
	LinkBytesPerSecond float64       // to another device
	LinkLatency        time.Duration
}

// Default is a virtual CPU device of the pure-Go backend, roughly: its matrix products on one core of a current server,
// memory that other devices use too, and a link within the machine. Parts of a program are compared on it; only the
// ratios matter.
var Default = Machine{
	FlopsPerSecond:     20e9,
	BytesPerSecond:     8e9,
	OpTime:             time.Microsecond,
	LinkBytesPerSecond: 4e9,
	LinkLatency:        10 * time.Microsecond,
}

// Time is how long the machine takes for an op: it computes and reads memory at the same time.
func (m Machine) Time(op *ir.Op) time.Duration {
	if op.IsLeaf() || renames[op.Type()] {
		return 0
	}
	c := Of(op)
	return m.OpTime + seconds(max(float64(c.Flops)/m.FlopsPerSecond, float64(c.Bytes())/m.BytesPerSecond))
}

// Transfer is how long so many bytes take to another device.
func (m Machine) Transfer(bytes int64) time.Duration {
	if bytes == 0 {
		return 0
	}
	return m.LinkLatency + seconds(float64(bytes)/m.LinkBytesPerSecond)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
