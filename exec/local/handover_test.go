// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"errors"
	"reflect"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// neighbors are two devices with a value, which the first one hands over to the second.
func neighbors(t *testing.T) (from, to *run, in schedule.Instr) {
	t.Helper()
	p := ir.NewProgram("test")
	v := p.NewOp(&ir.Exp{}, nil, shapes.Make(dtypes.Float32, 4)).Outputs[0]
	s := &schedule.Program{Local: ir.Local{Replicas: 1, MicroBatches: 1}, Transfers: []schedule.Transfer{{Value: v, Into: v, To: 1}}}
	world, err := comm.NewInProcess(2, comm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Close() })
	x := &step{stepper: &stepper{program: p, schedule: s, ledger: schedule.NewLedger(p), runner: &Runner{}, world: world}}
	for rank := range 2 {
		op, err := gobackend.New("ops_sequential")
		if err != nil {
			t.Fatal(err)
		}
		pipe, err := world.All().Communicator(rank, 0)
		if err != nil {
			t.Fatal(err)
		}
		x.pipes = append(x.pipes, pipe)
		d := &device{backend: cpu.New(op, 1)}
		x.devices = append(x.devices, d)
		x.runs = append(x.runs, &run{step: x, id: rank, local: rank, device: d, values: map[schedule.Slot]*held{}, boxes: make([]box, 2), meter: &meter{}})
	}
	from, to = x.runs[0], x.runs[1]
	b, err := from.device.backend.BufferFromFlatData(0, []float32{1, 2, 3, 4}, v.Shape)
	if err != nil {
		t.Fatal(err)
	}
	if err := from.keep(schedule.Slot{Value: v}, b); err != nil {
		t.Fatal(err)
	}
	return from, to, schedule.Instr{Kind: schedule.Send}
}

// Whoever comes first, the second device gets the memory of the first one, which knows when.
func TestAValueIsHandedOverWhoeverComesFirst(t *testing.T) {
	for name, run := range map[string]func(give, take, await func() error) (errs [3]error){
		"the sender": func(give, take, await func() error) [3]error { return [3]error{give(), take(), await()} },
		"the receiver": func(give, take, await func() error) (errs [3]error) {
			over := make(chan error)
			go func() { over <- take() }()
			errs[0] = give()
			return [3]error{errs[0], <-over, await()}
		},
		"the sender, which waits": func(give, take, await func() error) (errs [3]error) {
			errs[0] = give()
			over := make(chan error)
			go func() { over <- await() }()
			return [3]error{errs[0], take(), <-over}
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, to, in := neighbors(t)
			v := from.schedule.Transfers[0].Value
			at := schedule.Slot{Value: v}
			h := from.values[at]
			errs := run(
				func() error { return from.handOver(in, to.id) },
				func() error { return to.takeOver(in, from.id) },
				from.waitSends)
			if err := errors.Join(errs[:]...); err != nil {
				t.Fatal(err)
			}
			if h.sending() {
				t.Error("the sender does not know that its value was taken")
			}
			mine, _ := h.Data()
			theirs, _ := to.values[at].Data()
			if reflect.ValueOf(mine).Pointer() != reflect.ValueOf(theirs).Pointer() {
				t.Error("the value was copied")
			}
		})
	}
}

// Until the other device comes, the value lies where it is; when all is aborted, nobody waits for it.
func TestAValueThatNobodyTakes(t *testing.T) {
	from, to, in := neighbors(t)
	if err := from.handOver(in, to.id); err != nil {
		t.Fatal(err)
	}
	if h := from.values[schedule.Slot{Value: from.schedule.Transfers[0].Value}]; !h.sending() {
		t.Error("a value that was not taken may be overwritten")
	}
	from.world.Abort(errors.New("the other device failed"))
	if err := from.waitSends(); err == nil {
		t.Error("a value is taken that nobody came for")
	}
	from.letGo()
}
