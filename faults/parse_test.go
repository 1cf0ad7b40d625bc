// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package faults

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestFaultsAreRead(t *testing.T) {
	got, err := Parse(" kill:rank=1,step=7; kill: rank=0 , save=2;delay:rank=0,to=1,time=50ms,step=3; corrupt:rank=2,to=0;; cut:rank=1,to=2,generation=all;" +
		"disk-full:rank=0; disk-error:rank=1,save=4; slow:rank=1,factor=2.5,generation=3; stop:rank=2,step=1; flip:rank=1,step=7,variable=/dense/weights; nan:rank=0,step=3; ")
	want := []Fault{
		{Kind: Kill, Rank: 1, Step: 7, Generation: 1},
		{Kind: Kill, Rank: 0, Save: 2, Generation: 1},
		{Kind: Delay, Rank: 0, To: 1, Time: 50 * time.Millisecond, Step: 3, Generation: 1},
		{Kind: Corrupt, Rank: 2, To: 0, Step: 1, Generation: 1},
		{Kind: Cut, Rank: 1, To: 2, Step: 1, Generation: AllGenerations},
		{Kind: DiskFull, Rank: 0, Save: 1, Generation: 1},
		{Kind: DiskError, Rank: 1, Save: 4, Generation: 1},
		{Kind: Slow, Rank: 1, Factor: 2.5, Step: 1, Generation: 3},
		{Kind: Stop, Rank: 2, Step: 1, Generation: 1},
		{Kind: Flip, Rank: 1, Step: 7, Variable: "/dense/weights", Generation: 1},
		{Kind: NaN, Rank: 0, Step: 3, Generation: 1},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%v, %v", want, got, err)
	}
}

// Nothing that is misspelt runs as something else, or not at all.
func TestFaultsThatAreNotUnderstoodAreRefusedWithTheGrammar(t *testing.T) {
	for text, want := range map[string]string{
		"kil:rank=1,step=7":                     `no fault "kil"; there are kill, stop, slow`,
		"kill":                                  "kill needs rank",
		"kill:rank=1":                           "kill needs step or save",
		"kill:rank=1,step=1,save=1":             "one of step and save",
		"kill:rank=1,step=0":                    "step=0 is not understood",
		"kill:rank=-1,step=1":                   "rank=-1 is not understood",
		"kill:rank=1,step=7,step=8":             "step is given twice",
		"kill:rank=1,stepp=7":                   `no key "stepp"; it has rank, step, save, generation`,
		"kill:rank=1,step=7,to=2":               `no key "to"`,
		"kill:rank=1 step=7":                    "rank=1 step=7 is not understood",
		"delay:rank=0,to=1,time=50":             "time=50 is not understood",
		"delay:rank=0,to=1,time=-1s":            "time=-1s is not understood",
		"slow:rank=0,factor=NaN":                "factor=NaN is not understood",
		"flip:rank=1":                           "flip needs step",
		"flip:rank=1,step=1,variable=":          "variable= is not understood",
		"cut:rank=1,to=1":                       "rank 1 has no connection to itself",
		"disk-full:rank=0,generation=later":     "generation=later is not understood",
		"stop:rank=1,step=3; explode:rank=1":    `"explode:rank=1"`,
		"slow:rank=0,factor=99999999999":        "factor=99999999999 is not understood",
		"kill:rank=99999999999999999999,step=1": "is not understood",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "EPL_FAULTS") || !strings.Contains(err.Error(), Grammar) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func TestEveryKindIsInTheGrammar(t *testing.T) {
	for _, k := range kinds {
		if !strings.Contains(Grammar, "  "+k.name+":rank=R") {
			t.Errorf("the grammar has no %s", k.name)
		}
	}
}

func TestFaultsOfRanksThatAreNotThereAreRefused(t *testing.T) {
	two := func(rank int) int { return rank / 2 } // devices a worker
	for text, want := range map[string]string{
		"kill:rank=4,step=1": "there is no rank 4; the job has 4 devices, ranks 0 to 3",
		"cut:rank=0,to=7":    "there is no rank 7",
		"cut:rank=0,to=1":    "devices of the same worker",
		"cut:rank=0,to=2":    "",
	} {
		all, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		err = Check(all, 4, two)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func TestSlowDevicesAreFaults(t *testing.T) {
	got, err := ParseSlow("20, 0,2.5", 3)
	if err != nil || Text(got) != "slow:rank=0,step=1,factor=20,generation=all; slow:rank=2,step=1,factor=2.5,generation=all" {
		t.Errorf("%v, %v", Text(got), err)
	}
}

// What is read is written again as it is, whatever it was.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "kill:rank=1,step=7; delay:rank=0,to=1,time=50ms", "slow:rank=0,factor=1e3;;", "cut:rank=1,to=2,generation=all", "kill:rank=1,save=2", ":=,;"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Parse(text)
		if err != nil {
			if !strings.Contains(err.Error(), Grammar) {
				t.Fatal(err)
			}
			return
		}
		again, err := Parse(Text(all))
		if err != nil || !reflect.DeepEqual(all, again) {
			t.Fatalf("%q: %v, then %v, %v", text, all, again, err)
		}
	})
}
