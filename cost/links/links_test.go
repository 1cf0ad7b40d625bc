// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package links

import (
	"strings"
	"sync"
	"testing"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/cost"
)

// both calls a function on the two ends of a link.
func both(t *testing.T, f func(end *comm.Communicator) (cost.Link, error)) (links [2]cost.Link, errs [2]error) {
	t.Helper()
	w, err := comm.NewInProcess(2, comm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	var done sync.WaitGroup
	for i := range links {
		end, err := w.All().Communicator(i, 0)
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() { links[i], errs[i] = f(end) })
	}
	done.Wait()
	return links, errs
}

func TestBothEndsMeasureALink(t *testing.T) {
	for name, measure := range map[string]func(end *comm.Communicator) (cost.Link, error){
		"quick": Quick,
		"long":  func(end *comm.Communicator) (cost.Link, error) { return Measure(end, 1<<20, 0) },
	} {
		all, errs := both(t, measure)
		for i, l := range all {
			if errs[i] != nil || l.Latency <= 0 || l.Bandwidth <= 0 || !l.Shared {
				t.Errorf("%s, end %d: %+v, %v", name, i, l, errs[i])
			}
		}
	}
}

func TestALinkThatBreaksIsAnErrorOnBothEnds(t *testing.T) {
	_, errs := both(t, func(end *comm.Communicator) (cost.Link, error) {
		if end.Position() == 1 {
			return cost.Link{}, end.AllReduce(make([]int32, 7), comm.Sum)
		}
		return Quick(end)
	})
	for i, err := range errs {
		if err == nil || !strings.HasPrefix(err.Error(), "epl: ") {
			t.Errorf("end %d: %v", i, err)
		}
	}
}
