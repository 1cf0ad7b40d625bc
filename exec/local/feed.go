// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Feed is where the batches of a step come from. The batch that GoMLX got gave the program its shapes; the step takes
// as many more as it has instances.
type Feed struct {
	spec   any
	inputs int            // the first so many tensors of a batch are inputs, the others labels
	shapes []shapes.Shape // of the tensors of every batch
	head   *train.Batch   // nil: this worker has no data for the step
	more   More
	all    []train.Batch // once taken
	odd    error         // how the batch differs that ended the step, if one did
	taken  bool
	next   func(n int) []*Feed // those of the next batches, as far as they are read; nil: nobody tells

	trained func(batches int, hash string) // is told what a training step has consumed; nil: nobody is
	hash    string                         // of the last batch of the step

	mu      sync.Mutex
	started *started // what was computed of the batch before its turn; nil: nothing
	round   *round   // where workers have data of their own, in a program without gradients; nil: it was not called yet
	number  int      // which batch of the round it stands for
	others  []*Feed  // of the round, which come next
}

// More gets up to n further batches: fewer, and no error, at the end of the data and before a batch that does not fit, which
// it leaves for the next step.
type More func(n int, fits func(train.Batch) bool) ([]train.Batch, error)

// NewFeed makes the feed of the step that starts with head. more gets the batches after it. next returns up to n feeds of the
// following batches, which have been read, and stay the next ones.
func NewFeed(head train.Batch, more More, next func(n int) []*Feed) *Feed {
	f := &Feed{spec: head.Spec, inputs: len(head.Inputs), head: &head, more: more, next: next}
	for _, t := range tensorsOf(head) {
		f.shapes = append(f.shapes, t.Shape())
	}
	return f
}

// take returns the batches of a step of n instances: fewer at the end of the data, and where a batch differs from the first,
// since all instances of a step run the same program. That one begins a step of its own.
func (f *Feed) take(n int) ([]train.Batch, error) {
	if f.taken {
		return nil, errors.New("epl: a batch of Env.Dataset was used for two steps")
	}
	f.taken = true
	if f.head == nil {
		return nil, nil
	}
	rest, err := f.more(n-1, func(b train.Batch) bool {
		f.odd = sameShapes(*f.head, b)
		return f.odd == nil
	})
	if err != nil {
		return nil, err
	}
	f.all = append([]train.Batch{*f.head}, rest...)
	return f.all, nil
}

// OnTrained lets told be called when a training step has consumed the batches, with their number and the hash of the last one.
func (f *Feed) OnTrained(told func(batches int, hash string)) { f.trained = told }

// Batches is how many batches the step takes, as far as that is known.
func (f *Feed) Batches() int {
	if f.head == nil {
		return 0
	}
	return max(len(f.all), 1)
}

// training is called when a training step has its batches, and has let go of none.
func (f *Feed) training() (err error) {
	if f == nil || f.trained == nil {
		return nil
	}
	last := *f.head
	if len(f.all) > 0 {
		last = f.all[len(f.all)-1]
	}
	f.hash, err = Hash(last)
	return err
}

// consumed is called when that step is complete.
func (f *Feed) consumed() {
	if f != nil && f.trained != nil {
		f.trained(f.Batches(), f.hash)
	}
}

// trains tells whether a program is a training step. One whose optimizer EPL does not know has no gradients, and runs on one device.
func trains(p *ir.Program) bool {
	return p.IsTraining() || slices.ContainsFunc(p.Variables, func(v *ir.Variable) bool { return v.Trainable && v.Update != nil })
}

// Hash tells batches apart. It is the same in every run.
func Hash(b train.Batch) (string, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli)) // for which processors have an instruction
	for _, t := range tensorsOf(b) {
		fmt.Fprintln(h, t.Shape())
		if err := t.ConstBytes(func(data []byte) { _, _ = h.Write(data) }); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%08x", h.Sum32()), nil
}

// samples is how many samples a batch has: the first dim of its first tensor.
func (f *Feed) samples() int64 {
	if f == nil || len(f.shapes) == 0 || f.shapes[0].Rank() == 0 {
		return 1
	}
	return int64(f.shapes[0].Dimensions[0])
}

func sameShapes(a, b train.Batch) error {
	if a.Spec != b.Spec {
		return errors.Errorf("its spec is %v, not %v", b.Spec, a.Spec)
	}
	for _, x := range []struct {
		what string
		a, b []*tensors.Tensor
	}{{"input", a.Inputs, b.Inputs}, {"label", a.Labels, b.Labels}} {
		if len(x.a) != len(x.b) {
			return errors.Errorf("it has %d %ss, not %d", len(x.b), x.what, len(x.a))
		}
		for i := range x.a {
			if s, t := x.a[i].Shape(), x.b[i].Shape(); !s.Equal(t) {
				return errors.Errorf("%s %d is %s, not %s", x.what, i, ir.ShapeText(t), ir.ShapeText(s))
			}
		}
	}
	return nil
}

// Batch returns what to give to GoMLX: tensors that report the shapes of one batch and stand for those of the step.
func (f *Feed) Batch(d *Runner) (train.Batch, error) {
	out := train.Batch{Spec: f.spec}
	for i, shape := range f.shapes {
		t, err := tensors.FromBuffer(&Buffer{runner: d, shape: shape, feed: f, index: i})
		if err != nil {
			return out, err
		}
		if i < f.inputs {
			out.Inputs = append(out.Inputs, t)
		} else {
			out.Labels = append(out.Labels, t)
		}
	}
	return out, nil
}

// IsFeed tells whether a tensor stands for those of all batches of a step.
func IsFeed(t *tensors.Tensor) bool {
	if !t.IsOnAnyDevice() {
		return false
	}
	backend, err := t.Backend()
	if err != nil {
		return false
	}
	b, err := t.Buffer(backend, 0)
	if err != nil {
		return false
	}
	ours, ok := b.(*Buffer)
	return ok && ours.feed != nil
}

// tensorsOf are the inputs and labels of a batch, in the order in which the program takes them.
func tensorsOf(b train.Batch) []*tensors.Tensor { return slices.Concat(b.Inputs, b.Labels) }

// upload puts one tensor of a batch on a device.
func (f *Feed) upload(d *Runner, device int, b train.Batch, index int) (compute.Buffer, error) {
	t := tensorsOf(b)[index]
	var buf compute.Buffer
	var err error
	if readErr := t.ConstFlatData(func(flat any) { buf, err = d.devices[device].BufferFromFlatData(0, flat, t.Shape()) }); readErr != nil {
		return nil, readErr
	}
	return buf, err
}

// host is one tensor of a batch, as a slice.
func (f *Feed) host(b train.Batch, index int) (any, error) {
	t := tensorsOf(b)[index]
	flat := newFlat(t.Shape())
	err := t.ConstFlatData(func(from any) { copyFlat(flat, from) })
	return flat, err
}

// BatchesOf implements exec.Runner.
func (d *Runner) BatchesOf(input compute.Buffer) int {
	if b, ok := input.(*Buffer); ok && b.feed != nil {
		return b.feed.Batches()
	}
	return 1
}

// Given implements exec.Runner.
func (d *Runner) Given(input compute.Buffer, batch int) (any, error) {
	b, ok := input.(*Buffer)
	if !ok || b.feed == nil {
		shape, err := input.Shape()
		if err != nil {
			return nil, err
		}
		flat := newFlat(shape)
		return flat, input.ToFlatData(flat)
	}
	if len(b.feed.all) == 0 { // a step that takes one
		return b.feed.host(*b.feed.head, b.index)
	}
	return b.feed.host(b.feed.all[batch], b.index)
}

// Others are the feeds of batches that are to come next, once: a program that ran on this one runs on those of all workers.
func (f *Feed) Others() (others []*Feed) {
	others, f.others = f.others, nil
	return others
}

// Head is the batch that the step begins with. What was computed of it before its turn is let go of.
func (f *Feed) Head() train.Batch {
	f.drop()
	return *f.head
}

// Discard lets go of the batch that the step would begin with.
func (f *Feed) Discard() {
	f.drop()
	if f.head != nil {
		_ = f.head.Finalize()
	}
}

// finalize lets go of one tensor of every batch.
func (f *Feed) finalize(index int) error {
	f.drop()
	all := f.all
	if all == nil && f.head != nil {
		all = []train.Batch{*f.head}
	}
	for _, b := range all {
		if err := tensorsOf(b)[index].FinalizeAll(); err != nil {
			return err
		}
	}
	return nil
}
