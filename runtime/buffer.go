// Package runtime runs compiled programs on devices and owns their data.
//
// A [Device] is an inner backend that runs one program at a time. A [Buffer] is what GoMLX holds for a tensor: its
// logical shape, and the shards of it on the devices.
package runtime

import (
	"reflect"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// Buffer is a tensor on the devices. It implements compute.Buffer. GoMLX sees the logical shape; the data are shards,
// buffers of the inner backends. With one device there is one shard, which is the whole.
type Buffer struct {
	data  *Data
	shape shapes.Shape

	mu     sync.Mutex // GoMLX may finalize from the garbage collector's goroutine
	shards []compute.Buffer
}

var _ compute.Buffer = (*Buffer)(nil)

var errGone = errors.New("epl: a buffer was used after it was finalized or donated")

// Backend implements compute.Buffer.
func (b *Buffer) Backend() compute.Backend { return b.data.Owner }

// Shape implements compute.Buffer.
func (b *Buffer) Shape() (shapes.Shape, error) { return b.shape, nil }

// DeviceNum implements compute.Buffer: GoMLX sees one device.
func (b *Buffer) DeviceNum() (compute.DeviceNum, error) { return 0, nil }

// shard returns the data of one device.
func (b *Buffer) shard(device int) (compute.Buffer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shards == nil {
		return nil, errGone
	}
	return b.shards[device], nil
}

// take returns the data of all devices to a new owner: the buffer is gone.
func (b *Buffer) take() ([]compute.Buffer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shards == nil {
		return nil, errGone
	}
	s := b.shards
	b.shards = nil
	return s, nil
}

// Finalize implements compute.Buffer. Doing it twice is harmless.
func (b *Buffer) Finalize() error {
	shards, err := b.take()
	if err != nil {
		return nil
	}
	var first error
	for _, s := range shards {
		if err := s.Finalize(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// ToFlatData implements compute.Buffer.
func (b *Buffer) ToFlatData(flat any) error {
	s, err := b.shard(0)
	if err != nil {
		return err
	}
	return s.ToFlatData(flat)
}

// Data implements compute.Buffer, by an error: see [Data.HasSharedBuffers].
func (b *Buffer) Data() (any, error) {
	return nil, errors.New("epl: buffers are not shared with the host: use ToFlatData")
}

// CopyToDevice implements compute.Buffer: a copy on the one device that GoMLX sees. It goes through the host, since
// inner backends need not know how to copy to the device a buffer is on.
func (b *Buffer) CopyToDevice(device compute.DeviceNum) (compute.Buffer, error) {
	if err := b.data.check(device); err != nil {
		return nil, err
	}
	n := b.shape.Size()
	if per := b.shape.DType.ValuesPerStorageUnit(); per > 1 {
		n = (n + per - 1) / per
	}
	flat := reflect.MakeSlice(reflect.SliceOf(b.shape.DType.GoType()), n, n).Interface()
	if err := b.ToFlatData(flat); err != nil {
		return nil, err
	}
	return b.data.BufferFromFlatData(device, flat, b.shape)
}

// Data moves tensors to and from devices. It implements compute.DataInterface.
type Data struct {
	// Owner is the backend that GoMLX knows the buffers by.
	Owner  compute.Backend
	device compute.Backend
}

// NewData keeps buffers on an inner backend.
func NewData(device compute.Backend) *Data { return &Data{device: device} }

func (d *Data) check(device compute.DeviceNum) error {
	if device != 0 {
		return errors.Errorf("epl: there is no device %d for GoMLX to place data on: EPL shows one, number 0, and distributes by itself", device)
	}
	return nil
}

func (d *Data) wrap(shard compute.Buffer) (*Buffer, error) {
	shape, err := shard.Shape()
	if err != nil {
		return nil, err
	}
	return &Buffer{data: d, shape: shape, shards: []compute.Buffer{shard}}, nil
}

// BufferFromFlatData implements compute.DataInterface.
func (d *Data) BufferFromFlatData(device compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	if err := d.check(device); err != nil {
		return nil, err
	}
	b, err := d.device.BufferFromFlatData(0, flat, shape)
	if err != nil {
		return nil, err
	}
	return &Buffer{data: d, shape: shape, shards: []compute.Buffer{b}}, nil
}

// HasSharedBuffers implements compute.DataInterface. It is false even where the inner backend shares memory with the
// host: shards on several devices have no single address, and a copy per input batch costs less than can be measured.
func (d *Data) HasSharedBuffers() bool { return false }

// NewSharedBuffer implements compute.DataInterface, by an error.
func (d *Data) NewSharedBuffer(compute.DeviceNum, shapes.Shape) (compute.Buffer, any, error) {
	return nil, nil, errors.New("epl: buffers are not shared with the host: use BufferFromFlatData")
}
