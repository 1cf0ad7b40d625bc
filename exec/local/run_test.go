// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// lent is a buffer that knows whether it was let go.
type lent struct {
	compute.Buffer
	gone bool
}

func (b *lent) Finalize() error { b.gone = true; return nil }

func (b *lent) Shape() (shapes.Shape, error) { return shapes.Make(dtypes.Float32, 4), nil }

// A value that another device still reads is not let go, nor given to an op that would write over it, and counts as living.
func TestAValueLivesUntilItsReceiverHasIt(t *testing.T) {
	w, err := comm.NewInProcess(2, comm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var ends []*comm.Communicator
	for rank := range 2 {
		c, err := w.All().Communicator(rank, 0)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, c)
	}
	p := ir.NewProgram("test")
	v := p.NewOp(&ir.Exp{}, nil, shapes.Make(dtypes.Float32, 4)).Outputs[0]
	at := schedule.Slot{Value: v, Micro: 0}
	r := &run{step: &step{stepper: &stepper{ledger: schedule.NewLedger(p)}}, device: &device{}, values: map[schedule.Slot]*held{}, meter: &meter{}}
	b := &lent{}
	if err := r.keep(at, b); err != nil {
		t.Fatal(err)
	}
	send := ends[0].Start(comm.Call{Op: comm.Send, Buf: []float32{1, 2, 3, 4}, Peer: 1})
	r.values[at].sends = []sending{send}
	reads := &line{takes: []schedule.Slot{at}, frees: []bool{true}}
	if _, owned, _, err := r.input(v, reads, 0); owned || err != nil {
		t.Errorf("a segment may write over what is being sent: %v, %v", owned, err)
	}
	if err := r.free(at); err != nil {
		t.Fatal(err)
	}
	if err := r.reap(); err != nil || b.gone || r.meter.books.Live.Total() != 16 {
		t.Errorf("it is let go while it is being sent: gone %v, %d bytes live, %v", b.gone, r.meter.books.Live.Total(), err)
	}
	if err := ends[1].Recv(make([]float32, 4), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := send.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := r.reap(); err != nil || !b.gone || r.meter.books.Live.Total() != 0 {
		t.Errorf("it is not let go when it was received: gone %v, %d bytes live, %v", b.gone, r.meter.books.Live.Total(), err)
	}
}
