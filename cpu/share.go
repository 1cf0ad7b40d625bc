// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"crypto/sha256"
	"slices"
	"sync"
	"weak"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// shared are the plans of this process, by what their segments compute: devices that run the same, blocks that repeat, and the account of memory that
// is made before, take one plan. They last as long as somebody has them.
var shared = struct {
	sync.Mutex
	made map[planKey]weak.Pointer[plan]
}{made: map[planKey]weak.Pointer[plan]{}}

// planKey is equal for segments of which the same plan is made.
type planKey [sha256.Size]byte

// recently is how many plans a device holds on to that are looked up, so that what the account of memory planned is there when it is compiled.
const recently = 128

// planOf is the plan of a segment: another one's, if that computes the same.
func (b *Backend) planOf(s *ir.Segment, other fallbackCompiler) (*plan, error) {
	key, ok := keyOf(s, b.opts)
	if !ok {
		return newPlan(s, b.opts, other)
	}
	if p := sharedPlan(key); p != nil {
		return p.of(s), nil
	}
	p, err := newPlan(s, b.opts, other)
	if err != nil || !p.alike() {
		return p, err
	}
	shared.Lock()
	shared.made[key] = weak.Make(p)
	shared.Unlock()
	b.recent.Lock()
	defer b.recent.Unlock()
	b.recent.plans = append(b.recent.plans, p)
	b.recent.plans = slices.Delete(b.recent.plans, 0, max(0, len(b.recent.plans)-recently))
	return p, nil
}

// sharedPlan is the plan of a key; nil: there is none. It forgets plans that nobody has.
func sharedPlan(key planKey) *plan {
	shared.Lock()
	defer shared.Unlock()
	p := shared.made[key].Value()
	if p == nil {
		for k, w := range shared.made {
			if w.Value() == nil {
				delete(shared.made, k)
			}
		}
	}
	return p
}

// alike tells whether nothing in the plan belongs to a device, or to the ops of its segment.
func (p *plan) alike() bool {
	for _, step := range p.steps {
		for _, t := range step {
			if t.other != nil || t.control != nil {
				return false
			}
		}
	}
	return true
}

// of is the plan for another segment that computes the same.
func (p *plan) of(s *ir.Segment) *plan {
	if p.segment == s {
		return p
	}
	return &plan{segment: s, first: p, views: p.views, nodes: p.nodes, steps: p.steps, tensors: p.tensors, number: p.number, outputs: p.outputs, arena: p.arena, lives: p.lives}
}

// own is the op of the segment that stands where op does in the one that the plan was made of, or op itself.
func (p *plan) own(op *ir.Op) *ir.Op {
	if p.first != nil {
		if i := slices.Index(p.first.segment.Ops, op); i >= 0 {
			return p.segment.Ops[i]
		}
	}
	return op
}

// ownLives are the tensors in the arena, as values of the segment.
func (p *plan) ownLives() []emit.Life {
	if p.first == nil {
		return p.lives
	}
	value := map[*ir.Value]*ir.Value{}
	from := p.first.segment
	for i, v := range from.Inputs {
		value[v] = p.segment.Inputs[i]
	}
	for i, op := range from.Ops {
		for k, v := range op.Outputs {
			value[v] = p.segment.Ops[i].Outputs[k]
		}
	}
	lives := slices.Clone(p.lives)
	for i := range lives {
		if v := value[lives[i].Value]; v != nil {
			lives[i].Value = v
		}
	}
	return lives
}
