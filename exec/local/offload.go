package local

import (
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// hostBuffer is a tensor in the memory of the host. It implements compute.Buffer, and is not written to.
type hostBuffer struct {
	backend compute.Backend
	flat    any
	shape   shapes.Shape
}

var _ compute.Buffer = (*hostBuffer)(nil)

// Backend implements compute.Buffer: that of the device that uses it.
func (h *hostBuffer) Backend() compute.Backend { return h.backend }

// Shape implements compute.Buffer.
func (h *hostBuffer) Shape() (shapes.Shape, error) { return h.shape, nil }

// DeviceNum implements compute.Buffer.
func (h *hostBuffer) DeviceNum() (compute.DeviceNum, error) { return 0, nil }

// ToFlatData implements compute.Buffer.
func (h *hostBuffer) ToFlatData(flat any) error {
	copyFlat(flat, h.flat)
	return nil
}

// Data implements compute.Buffer, by an error: others may have the same memory.
func (h *hostBuffer) Data() (any, error) {
	return nil, errors.New("epl: a variable on the host is not shared: use ToFlatData")
}

// CopyToDevice implements compute.Buffer.
func (h *hostBuffer) CopyToDevice(device compute.DeviceNum) (compute.Buffer, error) {
	return h.backend.BufferFromFlatData(device, h.flat, h.shape)
}

// Finalize implements compute.Buffer: the garbage collector does it.
func (h *hostBuffer) Finalize() error { return nil }

// onHost is what a device has of a variable, in the memory of the host: all of it, which devices share, or a part. It leaves
// nothing of it on devices.
func (b *Buffer) onHost(device int, part *rows) (*hostBuffer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, errGone
	}
	backend := b.runner.devices[device]
	if part != nil && device < len(b.parts) && b.parts[device] != nil && b.rows[device] == *part {
		if h, ok := b.parts[device].(*hostBuffer); ok {
			return h, nil
		}
	}
	if part == nil && device < len(b.shards) {
		if h, ok := b.shards[device].(*hostBuffer); ok {
			return h, nil
		}
	}
	onDevices := slices.ContainsFunc(b.shards, func(x compute.Buffer) bool { return x != nil })
	if b.flat == nil || b.pieces != nil || onDevices {
		flat, err := b.host()
		if err != nil {
			return nil, err
		}
		if err := b.leave(flat); err != nil {
			return nil, err
		}
	}
	if part == nil {
		return &hostBuffer{backend, b.flat, b.shape}, nil
	}
	h := &hostBuffer{backend, newFlat(part.shape(b.shape)), part.shape(b.shape)}
	part.cut(h.flat, b.flat, b.shape)
	return h, nil
}

// onDevice makes a buffer of a device of one that may be on the host, where another device may have put it.
func onDevice(device compute.Backend, b compute.Buffer) (compute.Buffer, error) {
	if h, ok := b.(*hostBuffer); ok {
		return device.BufferFromFlatData(0, h.flat, h.shape)
	}
	return b, nil
}

// load brings a variable to the device, while the device goes on.
func (r *run) load(v *ir.Value) error {
	h := r.host[v]
	if h == nil {
		return errors.Errorf("%s is not on the host", v)
	}
	type arrived struct {
		b   compute.Buffer
		err error
	}
	come := make(chan arrived, 1)
	r.drawn.Go(func() {
		start := time.Now()
		b, err := r.device.backend.BufferFromFlatData(0, h.flat, h.shape)
		r.communicated(r.hostLane(), loadOp, v.String(), start, v.Bytes())
		come <- arrived{b, err}
	})
	r.coming(schedule.Slot{Value: v, Micro: schedule.Once}, v.Bytes(), loadOp, func() (compute.Buffer, error) {
		x := <-come
		return x.b, x.err
	})
	return r.meter.add(r.ledger.Use(v), v.Bytes())
}

// coming keeps a value that is on its way, by some op.
func (r *run) coming(at schedule.Slot, bytes int64, op string, arrival func() (compute.Buffer, error)) {
	r.values[at] = &held{use: r.ledger.Use(at.Value), bytes: bytes, arrival: arrival, op: op, what: at.Value.String()}
}

// What moves variables between host and device, in a timeline.
const (
	loadOp  = "load"
	storeOp = "store"
)

// store takes the new value of a variable to the host. Devices of this worker that have the same value share what the first
// of them stores.
func (r *run) store(v *ir.Value) error {
	if r.storer(v) != r {
		return nil
	}
	h, err := r.value(schedule.Slot{Value: v, Micro: schedule.Once})
	if err != nil {
		return err
	}
	start := time.Now()
	shape := v.LocalShape(r.at())
	flat, err := toHost(h, shape)
	if err != nil {
		return err
	}
	r.did(trace.Event{Kind: trace.Wait, Op: storeOp, Name: v.String(), Start: start})
	r.communicated(r.hostLane(), storeOp, v.String(), start, v.Bytes())
	r.host[v] = &hostBuffer{r.device.backend, flat, shape}
	return nil
}

// storer is the device of this worker that stores a new value: the first that has it, unless each has a part of its own.
func (r *run) storer(v *ir.Value) *run {
	home := r.schedule.Variables[slices.IndexFunc(r.schedule.Variables, func(x schedule.Variable) bool { return x.Update == v })]
	if home.Param.On(ir.Replicas).Kind == ir.Flat {
		return r
	}
	return r.runs[slices.IndexFunc(r.runs, func(o *run) bool { return o.place == r.place && o.position == r.position })]
}

// stored is a new value on the host, of a device of this worker.
func (r *run) stored(v *ir.Value) (compute.Buffer, error) {
	h := r.storer(v).host[v]
	if h == nil {
		return nil, errors.Errorf("device %d did not store it", r.id)
	}
	return h, nil
}
