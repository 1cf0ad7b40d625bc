// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/shard"
)

// pattern says in the words of the field what a way splits, and how; "": it splits nothing.
func (s *searcher) pattern(w *candidate, chosen *shard.Chosen) string {
	if w.Split == 1 || chosen == nil {
		return ""
	}
	if w.Part != "" {
		heavy := s.chain.heavy(w.Part)
		if slices.ContainsFunc(s.products, func(x product) bool { return heavy[x.of] && x.kind == cost.AllToAll }) {
			return fmt.Sprintf("expert parallelism: the experts (%s) are dealt to %d devices, which exchange their inputs and outputs by all-to-all; all else is data parallel", w.Part, w.Split)
		}
		return fmt.Sprintf("a split head: %s is split over %d devices, and all else is data parallel", w.Part, w.Split)
	}
	read := map[string]*ir.Variable{} // by products
	for i, name := range s.chain.p.VariableNames() {
		if v := s.chain.p.Variables[i]; slices.ContainsFunc(s.products, func(x product) bool { return x.of == v }) {
			read[name] = v
		}
	}
	columns, rows := false, false
	for _, x := range chosen.Variables {
		if v := read[x.Variable]; v != nil {
			columns = columns || x.Dim == v.Param.Shape.Rank()-1
			rows = rows || x.Dim == 0
		}
	}
	if columns && rows {
		return fmt.Sprintf("tensor parallelism over %d devices, as in Megatron-LM: of products that follow each other, the weights of the first are sharded by columns, those of the second by rows", w.Split)
	}
	return fmt.Sprintf("tensor parallelism over %d devices", w.Split)
}

// note adds what a user should know to a plan, and to what it made.
func (pl *Plan) note(r *Result, line string) {
	pl.Notes, r.Notes = append(pl.Notes, line), append(r.Notes, Note{Line: line})
}
