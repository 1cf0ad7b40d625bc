// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/easyparallel/epl/cpu/gemm"
	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

// plan is a compiled segment: steps that run one after the other, and where every tensor lies.
type plan struct {
	segment *ir.Segment
	views   views
	nodes   []*node
	steps   [][]*task
	tensors []tensor
	number  map[*ir.Value]int // of tensors
	outputs []int             // the tensors that the segment returns
	arena   int               // bytes of intermediate tensors
	lives   []emit.Life       // of intermediate tensors
	first   *plan             // that of another segment, which computes the same; nil: it was made of its own
	once    sync.Once
	watched []emit.Step // what steps tell of themselves, once they were asked
}

// task is a node, ready to run.
type task struct {
	node   *node
	code   *code // of a group
	dot    *gemm.Product
	native nativeFunc
	other  *fallback
	// control is an op with functions.
	control *control
	mems    []int // tensors: what its code names, or inputs and outputs
	reads   int   // of nodes that are no groups: how many of them are inputs
	own     int   // where memory for its partial results begins in the arena
	ownLen  int
	// inPlace says of a native op that its first output may lie where its first input is.
	inPlace bool
	// dotOffsets are where the operands of a product begin in their tensors, in bytes.
	dotOffsets [2]int
}

// nativeFunc computes an op that is neither a product nor part of a group, from contiguous tensors to contiguous tensors.
type nativeFunc func(team *pool.Pool, in, out []unsafe.Pointer) error

// place says where a tensor lies.
type place uint8

const (
	inArena  place = iota // at an offset of the device's memory for intermediate tensors
	isInput               // in the memory of an input
	isConst               // in memory of the plan
	isOutput              // in the memory of an output
	isResult              // in what another backend returned, or a function
	isShared              // in memory of another backend, which reads it there
)

// tensor is a value with memory of its own.
type tensor struct {
	value      *ir.Value
	place      place
	index      int // of the input or output; the offset in the arena
	bytes      int
	made, last int // the steps that write it and read it last
	constant   []byte
	// shared is the shape in which another backend reads the tensor where it is; not Ok: it does not.
	shared shapes.Shape
	// over is the tensor whose memory it takes, element by element: -1 if none. If that is an input, only where the input
	// is donated.
	over int
}

// newPlan compiles a segment.
func newPlan(s *ir.Segment, o options, other fallbackCompiler) (*plan, error) {
	n := len(s.Ops)
	p := &plan{segment: s, views: make(views, n), number: make(map[*ir.Value]int, n)}
	b := &builder{plan: p, opts: o, fuser: newFuser(p.views, o, n), tasks: map[*ir.Op]*task{}, uses: make(map[*ir.Value]int, n), contiguous: map[*ir.Value]*ir.Value{},
		onlyTranspose: map[*ir.Value]*ir.Op{}, onlyAdd: map[*ir.Value]*ir.Op{}}
	for _, op := range s.Ops {
		op.Uses(func(v *ir.Value) { b.uses[v]++ })
		switch op.Attrs.(type) {
		case *ir.Transpose:
			if o.views {
				b.onlyTranspose[op.Inputs[0]] = op
			}
		case *ir.Add:
			for _, v := range op.Inputs {
				b.onlyAdd[v] = op
			}
		}
	}
	for _, v := range s.Outputs {
		b.uses[v] += 2 // so that it keeps its own layout
	}
	for _, v := range s.Inputs {
		b.tensor(v, isInput, slices.Index(s.Inputs, v))
	}
	sums, within := b.padSums(s.Ops)
	for _, op := range s.Ops {
		if within[op] {
			continue
		}
		if sum := sums[op]; sum != nil {
			sum.add(b, op)
			continue
		}
		if err := b.op(op, other); err != nil {
			return nil, err
		}
	}
	if err := b.returns(other); err != nil {
		return nil, err
	}
	if o.elementwise && o.reduce {
		returned := map[*ir.Value]bool{}
		for _, n := range b.outputs {
			returned[b.tensors[n].value] = true
		}
		b.fuser.sink(returned)
	}
	p.nodes = b.fuser.order()
	b.schedule()
	b.share()
	b.memory()
	return p, nil
}

// builder makes a plan.
type builder struct {
	*plan
	opts       options
	fuser      *fuser
	tasks      map[*ir.Op]*task // of nodes that are no groups
	uses       map[*ir.Value]int
	contiguous map[*ir.Value]*ir.Value // a tensor with the elements of a value in order
	// onlyTranspose is the transpose that reads a value, if one does; onlyAdd is the addition.
	onlyTranspose, onlyAdd map[*ir.Value]*ir.Op
}

// tensor numbers a value that has memory of its own.
func (p *plan) tensor(v *ir.Value, at place, index int) int {
	if i, ok := p.number[v]; ok {
		return i
	}
	bytes := 0
	if !v.Shape.IsDynamic() && !v.Shape.IsTuple() {
		bytes = int(v.Shape.ByteSize())
	}
	p.number[v] = len(p.tensors)
	p.tensors = append(p.tensors, tensor{value: v, place: at, index: index, bytes: bytes, made: -1, last: -1, over: -1})
	return p.number[v]
}

// op adds an op of the segment.
func (b *builder) op(op *ir.Op, other fallbackCompiler) error {
	if a, ok := op.Attrs.(*ir.Constant); ok && plain(op.Outputs[0]) {
		i := b.tensor(op.Outputs[0], isConst, 0)
		b.tensors[i].constant = bytesOf(a.Value.Flat)
		return nil
	}
	if _, ok := b.fuser.wrote[op.Outputs[0]]; ok {
		return nil // a transpose or an addition whose product has written it
	}
	if b.views.add(op) {
		if !b.opts.views {
			b.moved(op)
		}
		return nil
	}
	if a, ok := op.Attrs.(*ir.DotGeneral); ok && b.dot(op, a) {
		return nil
	}
	if fusible(op) {
		b.fuser.add(op)
		return nil
	}
	if b.reduceAny(op) || b.dense(op) {
		return nil
	}
	for _, add := range []func(*ir.Op, fallbackCompiler) (bool, error){b.written, b.call, b.control} {
		if done, err := add(op, other); done || err != nil {
			return err
		}
	}
	if make := natives[op.Type()]; make != nil && !slices.ContainsFunc(op.Inputs, func(v *ir.Value) bool { return v == nil || !plain(v) }) &&
		!slices.ContainsFunc(op.Outputs, func(v *ir.Value) bool { return !plain(v) }) {
		if f := make(op); f != nil {
			b.whole(op, &task{native: f, inPlace: inPlace[op.Type()]}, op.Inputs)
			return nil
		}
	}
	return b.opByOp(op, other)
}

// opByOp adds an op that GoMLX's backend runs.
func (b *builder) opByOp(op *ir.Op, other fallbackCompiler) error {
	var inputs []*ir.Value
	op.Uses(func(v *ir.Value) {
		if !slices.Contains(inputs, v) {
			inputs = append(inputs, v)
		}
	})
	f, err := newFallback(op, inputs, other)
	if err != nil {
		return err
	}
	b.whole(op, &task{other: f}, inputs)
	return nil
}

// whole adds a node of one op that reads and writes contiguous tensors.
func (b *builder) whole(op *ir.Op, t *task, inputs []*ir.Value) {
	var roots []*ir.Value
	for _, v := range inputs {
		roots = append(roots, b.inOrder(v))
	}
	b.fuser.addNode(op, roots)
	b.tasks[op] = t
	for _, r := range roots {
		t.mems = append(t.mems, b.tensor(r, inArena, 0))
	}
	t.reads = len(t.mems)
	at := inArena
	if t.other != nil || t.control != nil {
		at = isResult
	}
	for _, out := range op.Outputs {
		t.mems = append(t.mems, b.tensor(out, at, 0))
	}
}

// inOrder returns a value with memory of its own that has the elements of v in order: its root, or a copy.
func (b *builder) inOrder(v *ir.Value) *ir.Value {
	w := b.views.of(v)
	if w.root == v || w.linear() {
		return w.root
	}
	if c := b.contiguous[v]; c != nil {
		return c
	}
	c := b.copyOf(v)
	b.contiguous[v] = c
	return c
}

// copyOf adds a copy of a value.
func (b *builder) copyOf(v *ir.Value) *ir.Value {
	op := synthetic(&ir.Identity{}, v.Shape, v)
	b.fuser.add(op)
	return op.Outputs[0]
}

// moved adds a copy of what an op that is a view would read, for all who read the op.
func (b *builder) moved(op *ir.Op) {
	out := op.Outputs[0]
	v := synthetic(op.Attrs, out.Shape, op.Inputs...).Outputs[0]
	b.views[v] = b.views.of(out)
	b.views[out] = b.views.of(b.copyOf(v))
}

// synthetic makes an op that is not of the program.
func synthetic(a ir.Attrs, shape shapes.Shape, inputs ...*ir.Value) *ir.Op {
	op := &ir.Op{ID: -1, Attrs: a, Inputs: inputs}
	op.Outputs = []*ir.Value{{Op: op, Shape: shape}}
	return op
}

// returns makes every output of the segment a tensor of its own.
func (b *builder) returns(other fallbackCompiler) error {
	taken := map[*ir.Value]bool{}
	for i, v := range b.segment.Outputs {
		root := v
		if plain(v) {
			root = b.inOrder(v)
		}
		_, made := b.fuser.wrote[root]
		if taken[root] || !made {
			op := synthetic(&ir.Identity{}, v.Shape, v)
			root = op.Outputs[0]
			if plain(v) {
				b.fuser.add(op)
			} else if err := b.opByOp(op, other); err != nil {
				return err
			}
		}
		taken[root] = true
		n := b.tensor(root, isOutput, i)
		t := &b.tensors[n]
		if t.place != isResult {
			t.place = isOutput
		}
		t.index = i
		b.outputs = append(b.outputs, n)
	}
	return nil
}

// schedule compiles the nodes, and decides which run at the same time.
func (b *builder) schedule() {
	output := map[*ir.Value]bool{}
	for _, n := range b.outputs {
		output[b.tensors[n].value] = true
	}
	codes := b.codes(output)
	for i, n := range b.nodes {
		t := b.tasks[n.ops[0]]
		if n.group != nil {
			t = &task{code: codes[i]}
			for _, v := range t.code.mems {
				t.mems = append(t.mems, b.tensor(v, inArena, 0))
			}
			for i := range t.code.partials {
				t.code.partials[i].offset = t.ownLen
				t.ownLen += t.code.partials[i].bytes
			}
		}
		t.node = n
		if k := len(b.steps) - 1; k >= 0 && (b.together(b.steps[k], t) || b.follows(b.steps[k], t)) {
			b.steps[k] = append(b.steps[k], t)
		} else {
			b.steps = append(b.steps, []*task{t})
		}
	}
}

// codes compiles the groups among the nodes, on all cores.
func (b *builder) codes(output map[*ir.Value]bool) []*code {
	codes := make([]*code, len(b.nodes))
	var next atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Pointer[any]
	work := func() {
		defer func() {
			if p := recover(); p != nil {
				failed.Store(&p)
			}
		}()
		for i := int(next.Add(1)) - 1; i < len(b.nodes); i = int(next.Add(1)) - 1 {
			if n := b.nodes[i]; n.group != nil {
				codes[i] = compileGroup(b.views, n, func(v *ir.Value) bool {
					return output[v] || slices.ContainsFunc(b.fuser.users[v], func(u *node) bool { return u.now() != n })
				}, b.opts.compileLoop())
			}
		}
	}
	for range min(runtime.GOMAXPROCS(0), len(b.nodes)/fewNodes) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	if p := failed.Load(); p != nil {
		panic(*p)
	}
	return codes
}

// fewNodes are compiled by one core: another one would take longer to begin.
const fewNodes = 16

// together tells whether a task can run at the same time as those of a step: groups that do not read each other.
func (b *builder) together(step []*task, t *task) bool {
	if t.code == nil || step[0].code == nil || len(step) >= 512 {
		return false
	}
	for _, v := range t.code.mems {
		if n := b.fuser.made(v); n != nil && n != t.node && slices.ContainsFunc(step, func(o *task) bool { return o.node == n }) {
			return false
		}
	}
	return true
}

// bytesOf is the memory of a slice of numbers.
func bytesOf(flat any) []byte {
	d := dtypes.FromAny(flat)
	return anyBytes(flat, d)
}
