// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"encoding/json"
	"hash/fnv"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/worker"
)

// Where every worker has a stream of batches of its own, the next batch of one may have other shapes than that of another: the
// last batch of an epoch is often smaller, and streams have different lengths. All instances of a step run the same program, so
// the workers take turns: they agree on the shapes of the next step, and a worker whose next batch has others keeps it, and
// takes part in the step without data, as one does that has run out.

// Turn is what a worker says of its next batch when a step begins.
type Turn struct {
	Next   *Feed // nil: there is none
	Waited int   // steps since the batch could have been taken
	Spec   any   // of this worker's batches, if it takes part without data
}

const (
	turnPresent = iota // 1: the worker has a batch
	turnWaited
	turnSamples
	turnShapes // a hash
	turnBytes  // of the text of the shapes
	turnLength
)

// NextStep agrees with the other workers on the shapes of the next step, which all must ask at the same time. It returns t.Next
// if they are those of this worker's batch, else a feed without data of these shapes; nil if no worker has a batch.
func NextStep(j *worker.Job, t Turn) (*Feed, error) {
	mine := make([]int64, turnLength)
	var text []byte
	if t.Next != nil {
		var err error
		if text, err = t.Next.marshal(); err != nil {
			return nil, err
		}
		h := fnv.New64a()
		_, _ = h.Write(text)
		mine[turnPresent], mine[turnWaited], mine[turnSamples] = 1, int64(t.Waited), t.Next.samples()
		mine[turnShapes], mine[turnBytes] = int64(h.Sum64()), int64(len(text))
	}
	start := time.Now()
	all, err := gather(j.Dealing, "env.Dataset", mine...)
	j.WaitForData(time.Since(start))
	if err != nil {
		return nil, err
	}
	chosen := chooseTurn(all)
	if chosen < 0 {
		return nil, nil
	}
	same := true
	for _, other := range all {
		same = same && other[turnShapes] == all[chosen][turnShapes]
	}
	if same {
		return t.Next, nil
	}
	if j.Worker != chosen {
		text = make([]byte, all[chosen][turnBytes])
	}
	if err := j.Dealing.Do(comm.Call{Op: comm.Broadcast, Buf: text, Root: chosen, Program: "env.Dataset"}); err != nil {
		return nil, err
	}
	if mine[turnShapes] == all[chosen][turnShapes] {
		return t.Next, nil
	}
	f := &Feed{spec: t.Spec}
	return f, f.unmarshal(text)
}

// chooseTurn picks the worker whose batch gives the next step its shapes: the one that has waited longest, so that none waits
// for ever; then the one with most samples, so that streams whose smaller batches come about the same time have them in one
// step. It is -1 if there is none.
func chooseTurn(all [][]int64) (chosen int) {
	chosen = -1
	for w, t := range all {
		if t[turnPresent] == 0 {
			continue
		}
		if chosen < 0 || t[turnWaited] > all[chosen][turnWaited] ||
			t[turnWaited] == all[chosen][turnWaited] && t[turnSamples] > all[chosen][turnSamples] {
			chosen = w
		}
	}
	return chosen
}

// feedText is what workers tell each other of the shapes of a step.
type feedText struct {
	Inputs  int
	Tensors []tensorText
}

type tensorText struct {
	DType dtypes.DType
	Dims  []int
}

func (f *Feed) marshal() ([]byte, error) {
	t := feedText{Inputs: f.inputs}
	for _, s := range f.shapes {
		t.Tensors = append(t.Tensors, tensorText{s.DType, append([]int{}, s.Dimensions...)})
	}
	return json.Marshal(t)
}

func (f *Feed) unmarshal(text []byte) error {
	var t feedText
	if err := json.Unmarshal(text, &t); err != nil {
		return errors.Wrap(err, "epl: internal error: another worker's shapes")
	}
	f.inputs = t.Inputs
	for _, x := range t.Tensors {
		f.shapes = append(f.shapes, shapes.Make(x.DType, x.Dims...))
	}
	return nil
}
