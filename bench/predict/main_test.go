// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/easyparallel/epl/cost"
)

// The tests start themselves as the command does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-row" {
		main()
		return
	}
	os.Exit(m.Run())
}

func rowsOf(pairs ...[2]float64) (rows []*Row) {
	for _, p := range pairs {
		rows = append(rows, &Row{way: way{Network: "n", Devices: 2, Workers: 1}, PredictedMS: p[0], MS: p[1], Samples: 4, Speed: 1, Memory: 1, Process: 1})
	}
	return rows
}

func TestCorrelationIsOfRanks(t *testing.T) {
	for _, x := range []struct {
		rows []*Row
		want float64
	}{
		{rowsOf([2]float64{1, 10}, [2]float64{2, 1000}, [2]float64{3, 1001}), 1},
		{rowsOf([2]float64{1, 3}, [2]float64{2, 2}, [2]float64{3, 1}), -1},
		{rowsOf([2]float64{1, 1}, [2]float64{2, 3}, [2]float64{3, 2}, [2]float64{4, 4}), 0.8},
		{rowsOf([2]float64{1, 1}, [2]float64{1, 2}, [2]float64{2, 3}), math.Sqrt(3) / 2}, // the first two share a rank
	} {
		if got := correlation(x.rows); math.Abs(got-x.want) > 1e-9 {
			t.Errorf("%v, not %v", got, x.want)
		}
	}
}

func TestTheChoiceIsComparedWithPlansOfTheSameDevicesAndSamples(t *testing.T) {
	rows := rowsOf([2]float64{1, 10}, [2]float64{1, 5}, [2]float64{1, 7}, [2]float64{1, 8})
	rows[1].Devices = 1
	rows[2].Samples = 8
	rows[3].Auto = true
	rows = append(rows, rowsOf([2]float64{1, 6})...)
	if chosen, best := choice(rows); chosen != rows[3] || best != rows[4] {
		t.Errorf("%+v against %+v", chosen, best)
	}
	if chosen, _ := choice(rows[:3]); chosen != nil {
		t.Errorf("%+v was not chosen", chosen)
	}
}

func TestTurnsCountInWhichTheMachineWasAsItWasCalibrated(t *testing.T) {
	r := &Row{Turns: []turn{
		{MS: []float64{9}, Speed: 0.6}, {MS: []float64{5}, Speed: 1.01}, {MS: []float64{1}, Speed: 1.8},
		{MS: []float64{7}, Speed: 1, Stolen: 0.5}, {MS: []float64{6}, Speed: 0.98}, {MS: []float64{8}, Speed: 0.7},
	}}
	r.settle()
	if len(r.times) != 2 || r.times[0]+r.times[1] != 11 || math.Abs(r.Speed-1) > 0.02 {
		t.Errorf("%v at speed %v", r.times, r.Speed)
	}
}

// A row is predicted in one process, and trains in another by the same plan.
func TestARowTrainsAsItWasPredicted(t *testing.T) {
	dir := t.TempDir()
	p := cost.Flat(1e11, 2e10, 1000)
	p.Name, p.Cores, p.Memory = cost.This, 2, 1<<30
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/this.json", text, 0o644); err != nil {
		t.Fatal(err)
	}
	r := &Row{way: way{Network: "moe", Name: "split", Devices: 2, Workers: 1, Split: 2, Heavy: true, Micro: 2}}
	if err := r.predict(dir, 0); err != nil {
		t.Fatal(err)
	}
	if r.Samples != 16 || r.PredictedMS <= 0 || r.PredictedMemory < 1<<20 {
		t.Errorf("%+v", r)
	}
	x, err := r.start(dir)
	if err != nil {
		t.Fatal(err)
	}
	times, err := x.train(2)
	x.stop()
	if err != nil || len(times) != 2 || times[0] <= 0 || r.Memory != r.PredictedMemory {
		t.Errorf("%v, %v, %+v", times, err, r)
	}
	r.MS, r.Speed = times[0], 1
	var out bytes.Buffer
	(&report{Source: "a test", Quantile: 0.5, Rows: []*Row{r}, Failed: []string{"gpt, DP 2: no memory"}}).print(&out)
	if !strings.Contains(out.String(), "Failed: gpt, DP 2: no memory") || !strings.Contains(out.String(), "| moe | split | 16 |") || !strings.Contains(out.String(), "median error of memory | 0.0 %") {
		t.Error(out.String())
	}
}
