package runtime

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// slot is where a value of an instance is kept; micro is schedule.Once for what the step has once.
type slot struct {
	v     *ir.Value
	micro int
}

// held is a buffer with what the meter knows of it, which it must not ask of a buffer that someone consumed.
type held struct {
	compute.Buffer
	kind  string
	bytes int64
}

// run is one device in one step.
type run struct {
	*step
	id     int // its rank
	local  int // its index among the worker's devices
	device *device
	values map[slot]held
	// spent are donated variables that a segment consumed.
	spent   map[int]bool
	pending []*merging // by bucket
	meter   *meter
}

func newRun(s *step, local int) *run {
	id := s.first + local
	r := &run{step: s, id: id, local: local, device: s.devices[local], values: map[slot]held{},
		spent: map[int]bool{}, pending: make([]*merging, len(s.schedule.Buckets)),
		meter: &meter{device: id, limit: s.opts.Memory, live: map[string]int64{}}}
	return r
}

// list works through the device's instructions.
func (r *run) list() (err error) {
	at := schedule.Instr{}
	defer func() {
		if p := recover(); p != nil {
			err = errors.Errorf("panic: %v", p)
		}
		if err != nil && !isConsequence(err) {
			err = errors.WithMessagef(err, "epl: device %d, %s", r.id, r.describe(at))
		}
	}()
	for _, shards := range r.shards {
		if shards != nil {
			if err := r.meter.add(forVariables, bytesOf(shards[r.local])); err != nil {
				return err
			}
		}
	}
	for _, at = range r.schedule.Devices[r.id] {
		if err := r.do(at); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) describe(in schedule.Instr) string {
	switch in.Kind {
	case schedule.Run:
		s := fmt.Sprintf("segment %s", r.schedule.Segments[in.Segment].Name)
		if in.Micro != schedule.Once {
			s += fmt.Sprintf(" of micro-batch %d", in.Micro)
		}
		return s
	case schedule.Free:
		return "free"
	}
	return fmt.Sprintf("%s bucket %d", in.Kind, in.Bucket)
}

func (r *run) do(in schedule.Instr) error {
	switch in.Kind {
	case schedule.Run:
		if in.Micro != schedule.Once && !r.deal.exists(r.id, in.Micro) {
			return nil
		}
		return r.segment(in)
	case schedule.Accumulate:
		if !r.deal.exists(r.id, in.Micro) {
			return nil
		}
		return r.accumulate(in)
	case schedule.Merge:
		return r.startMerge(in.Bucket)
	case schedule.Wait:
		start := time.Now()
		err := r.waitMerge(in.Bucket)
		r.trace.Add(r.id, 0, trace.Wait, fmt.Sprintf("bucket %d", in.Bucket), start, 0)
		return err
	case schedule.Free:
		for _, v := range in.Frees {
			if err := r.free(slot{v, in.Micro}); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Errorf("unknown instruction %s", in.Kind)
}

// segment runs a piece of the program.
func (r *run) segment(in schedule.Instr) error {
	s := r.schedule.Segments[in.Segment]
	ins, donate := make([]compute.Buffer, len(s.Inputs)), make([]bool, len(s.Inputs))
	for i, v := range s.Inputs {
		var err error
		if ins[i], donate[i], err = r.input(v, in); err != nil {
			return err
		}
	}
	temporary := schedule.Temporary(s)
	if err := r.meter.add(forTemporary, temporary); err != nil {
		return err
	}
	start := time.Now()
	outs, err := r.device.segments[in.Segment].Execute(ins, donate, 0)
	r.trace.Add(r.id, 0, trace.Run, r.describe(in), start, 0)
	r.meter.sub(forTemporary, temporary)
	if err != nil {
		return err
	}
	for i, v := range s.Inputs {
		if donate[i] {
			r.forget(slot{v, in.Micro})
		}
	}
	for i, v := range s.Outputs {
		if err := r.keep(slot{v, in.Micro}, outs[i], forValues); err != nil {
			return err
		}
	}
	if in.Segment == len(r.schedule.Segments)-2 { // the last of the instance
		for _, v := range r.program.Inputs {
			if err := r.free(slot{v, in.Micro}); err != nil {
				return err
			}
		}
	}
	return nil
}

// input finds an input of a segment; owned tells whether the segment may consume it.
func (r *run) input(v *ir.Value, in schedule.Instr) (b compute.Buffer, owned bool, err error) {
	switch v.Op.Attrs.(type) {
	case *ir.Instance:
		b, err = scalar(r.device.backend, []uint64{uint64(r.instance(r.id, in.Micro))}, dtypes.Uint64)
		return b, true, err
	case *ir.InstanceCount:
		b, err = scalar(r.device.backend, []float32{float32(r.deal.total())}, dtypes.Float32)
		return b, true, err
	case *ir.Parameter:
		i := r.param[v]
		if !r.isInput[v] {
			owned = r.donated[i] && in.Micro == schedule.Once
			if owned {
				r.spent[i] = true
				r.meter.sub(forVariables, bytesOf(r.shards[i][r.local]))
			}
			return r.shards[i][r.local], owned, nil
		}
		b, err = r.batch(v, in)
		return b, false, err
	}
	h, ok := r.values[slot{v, in.Micro}]
	if !ok {
		return nil, false, errors.Errorf("%s is not there", v)
	}
	return h.Buffer, slices.Contains(in.Frees, v), nil
}

// batch is an input of the instance, uploaded when its first segment needs it and freed after its last.
func (r *run) batch(v *ir.Value, in schedule.Instr) (compute.Buffer, error) {
	at := slot{v, in.Micro}
	if h, ok := r.values[at]; ok {
		return h.Buffer, nil
	}
	start := time.Now()
	index := r.tensor[v]
	_, number := r.deal.batch(r.id, in.Micro)
	b, err := r.feed.upload(r.data, r.local, r.batches[number], index)
	if err != nil {
		return nil, err
	}
	r.trace.Add(r.id, 0, trace.Data, fmt.Sprintf("input %d", index), start, bytesOf(b))
	return b, r.keep(at, b, forInputs)
}

func (r *run) keep(at slot, b compute.Buffer, kind string) error {
	bytes := bytesOf(b)
	r.values[at] = held{b, kind, bytes}
	return r.meter.add(kind, bytes)
}

// forget takes a value off the books: someone else has it now.
func (r *run) forget(at slot) {
	if b, ok := r.values[at]; ok {
		r.meter.sub(b.kind, b.bytes)
		delete(r.values, at)
	}
}

func (r *run) free(at slot) error {
	b, ok := r.values[at]
	if !ok {
		return nil
	}
	r.forget(at)
	return b.Finalize()
}

// accumulate adds the values of a micro-batch to those of the micro-batches before.
func (r *run) accumulate(in schedule.Instr) error {
	bucket := r.schedule.Buckets[in.Bucket]
	if !bucket.How.Adds() {
		return nil // all are kept, until they are merged
	}
	if in.Micro == 0 {
		for _, m := range bucket.Merges {
			v := m.Inputs[0]
			h := r.values[slot{v, 0}]
			r.forget(slot{v, 0})
			if err := r.keep(slot{v, schedule.Once}, h.Buffer, forMerging); err != nil {
				return err
			}
		}
		return nil
	}
	var ins []compute.Buffer
	for _, m := range bucket.Merges {
		v := m.Inputs[0]
		ins = append(ins, r.values[slot{v, schedule.Once}].Buffer, r.values[slot{v, in.Micro}].Buffer)
	}
	donate := slices.Repeat([]bool{true}, len(ins))
	start := time.Now()
	outs, err := r.device.adders[in.Bucket].Execute(ins, donate, 0)
	r.trace.Add(r.id, 0, trace.Run, r.describe(in), start, 0)
	if err != nil {
		return err
	}
	for i, m := range bucket.Merges {
		v := m.Inputs[0]
		r.forget(slot{v, in.Micro})
		r.forget(slot{v, schedule.Once})
		if err := r.keep(slot{v, schedule.Once}, outs[i], forMerging); err != nil {
			return err
		}
	}
	return nil
}

// give hands an output over.
func (r *run) give(v *ir.Value) (compute.Buffer, error) {
	at := slot{v, schedule.Once}
	h, ok := r.values[at]
	if !ok {
		return nil, errors.Errorf("device %d did not compute it", r.id)
	}
	r.forget(at)
	return h.Buffer, nil
}

// letGo frees what the step left behind: values, and donated variables that nothing consumed.
func (r *run) letGo() {
	for at := range r.values {
		_ = r.free(at)
	}
	for i, d := range r.donated {
		if d && r.shards[i] != nil && !r.spent[i] {
			_ = r.shards[i][r.local].Finalize()
		}
	}
}

func bytesOf(b compute.Buffer) int64 {
	s, err := b.Shape()
	if err != nil {
		return 0
	}
	return s.ByteSize()
}
