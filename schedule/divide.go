// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// Divide finds what each device needs of the places whose devices have different weights, where the account has only what the one of them needs that has most.
// plan is what the device plans for a segment; nil: they plan nothing.
func (s *Program) Divide(a *Account, p *ir.Program, t Traffic, plan func(*ir.Segment) (*emit.Listing, error)) error {
	most := 0
	for _, d := range s.Divisions {
		most = max(most, len(d.Weights))
	}
	for position := range most {
		l := NewLedger(p)
		l.position, l.divided = position, true
		profiles := make([]*Profile, len(s.Segments))
		for i, x := range s.Segments {
			part := x.First
			if position < len(x.Parts) {
				part = x.Parts[position]
			}
			var f *emit.Listing
			if plan != nil {
				var err error
				if f, err = plan(part); err != nil {
					return err
				}
			}
			profiles[i] = x.profile(l, part, f)
		}
		for place, c := range s.count(l, t, profiles, nothing) {
			if position < len(s.Divisions[place].Weights) {
				a.Places[place].Devices = append(a.Places[place].Devices, c.books.Peak)
			}
		}
	}
	return nil
}
