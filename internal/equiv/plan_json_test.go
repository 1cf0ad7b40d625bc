// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"bytes"
	"crypto/sha256"
	"reflect"
	"sync"
	"testing"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/compile"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
)

// Every plan of this package is written as JSON and read back, and does the same to the program as before. A plan names its program by a
// fingerprint, so what the same text does was seen the first time. It is the same without SIMD and under the race detector: not with -short.
func init() {
	compile.Decided = func(p *ir.Program, pl *plan.Plan, t plan.Target) {
		if testing.Short() {
			return
		}
		if err := roundTrip(p, pl, t); err != nil {
			panic(errors.WithMessagef(err, "the plan of program %q as JSON", p.Name))
		}
	}
}

var plansSeen sync.Map // by the hash of their text

func roundTrip(p *ir.Program, pl *plan.Plan, t plan.Target) error {
	var text bytes.Buffer
	if err := pl.Encode(&text); err != nil {
		return err
	}
	if _, seen := plansSeen.LoadOrStore(sha256.Sum256(text.Bytes()), true); seen {
		return nil
	}
	read, err := plan.Decode(bytes.NewReader(text.Bytes()))
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(read, pl) {
		return errors.Errorf("it is another one when it is read back:\n%s", plan.Diff(pl, read))
	}
	t.Planner = nil // what devices make of segments is no part of the plan
	_, err = read.Apply(p, t)
	return err // it compares what it makes with what was made before
}
