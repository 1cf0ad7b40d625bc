// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"sync"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// verdict is what devices found that check the values of a step by themselves: see schedule.Checks. It is on the devices until somebody asks: who reads
// a result of the step, or runs the next one. If the step is refused, variables are as they were before it.
type verdict struct {
	stepper *stepper
	step    uint64
	checks  *schedule.Checks

	mu     sync.Mutex
	found  [][]compute.Buffer // by device of this worker: whether it is refused, then the findings; nil: they were read
	reason error
	told   bool // somebody knows the reason
}

// leftByChecks takes what checks left on the devices.
func (s *step) leftByChecks() (*verdict, error) {
	checks := s.schedule.Checks
	if checks == nil {
		return nil, nil
	}
	v := &verdict{stepper: s.stepper, step: s.count, checks: checks}
	for _, r := range s.runs {
		if r.place < 0 {
			continue
		}
		var found []compute.Buffer
		for _, x := range append([]*ir.Value{checks.Refused}, checks.Findings...) {
			b, err := r.give(x)
			if err != nil {
				return nil, err
			}
			found = append(found, b)
		}
		v.found = append(v.found, found)
	}
	return v, nil
}

// judge is the error of the step before, if nobody has seen it.
func (x *stepper) judge() error {
	v := x.verdict
	if x.verdict = nil; v == nil {
		return nil
	}
	v.mu.Lock()
	told := v.told
	v.mu.Unlock()
	if err := v.err(); err != nil && !told {
		return err
	}
	return nil
}

// err is why the step is refused; nil: it is not. It waits for the devices.
func (v *verdict) err() error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.found != nil {
		if err := v.read(); err != nil {
			v.reason = errors.WithMessagef(err, "epl: program %q, step %d", v.stepper.program.Name, v.step)
		}
		v.free()
	}
	v.told = v.told || v.reason != nil
	return v.reason
}

// read looks at what devices found. All know whether the step is refused; why, those that have the values.
func (v *verdict) read() error {
	for _, found := range v.found {
		var refused [1]int32
		if err := found[0].ToFlatData(refused[:]); err != nil {
			return err
		}
		if refused[0] == 0 {
			return nil
		}
		for i, op := range v.checks.Merges {
			m, finding := op.Attrs.(*ir.Merge), v.checks.Findings[i].Shape
			flat, err := toHost(found[1+i], finding)
			if err != nil {
				return err
			}
			if m.How == ir.Agree {
				n := v.stepper.schedule.Local.Instances()
				if instance := int(flat.([]int32)[0]); instance < n {
					return errors.WithMessage(v.stepper.differs(op, instance), op.String())
				}
				continue
			}
			for at, x := range flat.([]float32) {
				if !(float64(x) <= m.Limit) {
					return tooLarge(m, x, at/finding.Dimensions[1])
				}
			}
		}
	}
	return errors.New("devices of another worker refuse the step: it says why")
}

// drop frees what nobody asked for.
func (v *verdict) drop() {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.free()
}

// free frees what is on the devices. The lock is held.
func (v *verdict) free() {
	for _, found := range v.found {
		for _, b := range found {
			_ = b.Finalize()
		}
	}
	v.found = nil
}
