// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package analysis_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// lineOf has an op for every letter, each as expensive as the others. Capital letters hand less on.
func lineOf(letters string) analysis.Line {
	kinds := map[rune]ir.Attrs{'a': &ir.Abs{}, 'e': &ir.Exp{}, 'n': &ir.Neg{}, 's': &ir.Sin{}, 't': &ir.Tanh{}}
	p := ir.NewProgram("line")
	shape := shapes.Make(dtypes.Float32, 4)
	v := p.NewOp(&ir.Parameter{Name: "x", Shape: shape}, nil, shape).Outputs[0]
	l := analysis.Line{Time: []time.Duration{0}, Crossing: []int64{0}}
	for _, c := range letters {
		op := p.NewOp(kinds[[]rune(strings.ToLower(string(c)))[0]], []*ir.Value{v}, shape)
		v = op.Outputs[0]
		bytes := int64(16)
		if strings.ToUpper(string(c)) == string(c) {
			bytes = 4
		}
		l.Ops, l.Time, l.Crossing = append(l.Ops, op), append(l.Time, l.Time[len(l.Time)-1]+time.Millisecond), append(l.Crossing, bytes)
	}
	return l
}

func TestBlocksAreFoundByTheirOps(t *testing.T) {
	for _, c := range []struct {
		what, line string
		want       []analysis.Run
	}{
		{"nothing repeats", "aenst", nil},
		{"one op after the other", "naaaat", []analysis.Run{{Start: 1, Size: 1, Count: 4}}},
		{"blocks between others", "nneSTeSTeSTna", []analysis.Run{{Start: 0, Size: 1, Count: 2}, {Start: 2, Size: 3, Count: 3}}},
		{"borders are where little crosses", "EtaEtaEtaE", []analysis.Run{{Start: 1, Size: 3, Count: 3}}},
		{"two kinds of blocks", "eSeSeSatNatN", []analysis.Run{{Start: 0, Size: 2, Count: 3}, {Start: 6, Size: 3, Count: 2}}},
		{"nothing at all", "", nil},
	} {
		if got := lineOf(c.line).Blocks(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q has the blocks %v, not %v", c.what, c.line, got, c.want)
		}
	}
}

func TestARepetitionThatTakesNoTimeIsNoBlock(t *testing.T) {
	l := lineOf("aaa" + "enst")
	for i := range l.Time {
		if i > 3 {
			l.Time[i] += time.Minute
		}
	}
	if got := l.Blocks(); got != nil {
		t.Errorf("it has the blocks %v", got)
	}
}
