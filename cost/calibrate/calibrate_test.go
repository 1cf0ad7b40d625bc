// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/cost"
)

func TestAMachineHasACompleteProfile(t *testing.T) {
	var said []string
	p, err := Machine(Options{Each: time.Nanosecond, sweeps: 1, Progress: func(what string) { said = append(said, what) }})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := cost.ParseProfile(text)
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if again.Name != cost.This || again.Cores < 1 || again.Within == nil || again.Inside == nil || again.Between == nil || again.Launch == 0 || !again.Fuses {
		t.Errorf("%s", text)
	}
	if again.Cores > 1 && again.Teams[again.Cores] == nil {
		t.Errorf("it says nothing of a device with all %d cores", again.Cores)
	}
	for _, want := range []string{"dot/float32", "math/float32", "transport tcp"} {
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("it did not say that it measures %s: %q", want, said)
		}
	}
}

func TestAProfileHasTheMediansOfWhatWasMeasured(t *testing.T) {
	var all []*cost.Profile
	for _, x := range []float64{3, 1, 2} {
		team := cost.Flat(10*x, x, time.Duration(x))
		team.Rates = map[string]cost.Rate{cost.Dot: {{Size: 1, PerSecond: 20 * x}, {Size: 10, PerSecond: 100 / x}}}
		p := cost.Flat(x, 4*x, time.Duration(x))
		p.Teams, p.Within = map[int]*cost.Profile{2: team}, &cost.Link{Latency: time.Duration(x), Bandwidth: 8 / x}
		all = append(all, p)
	}
	p := typical(all)
	if p.Launch != 2 || p.Bandwidth != 8 || p.Rates[cost.Dot][0].PerSecond != 2 || *p.Within != (cost.Link{Latency: 2, Bandwidth: 4}) {
		t.Errorf("%+v, %+v", p, p.Within)
	}
	if r := p.Teams[2].Rates[cost.Dot]; r[0].PerSecond != 40 || r[1].PerSecond != 50 {
		t.Errorf("a team of two: %v", r)
	}
}

func TestTransportsThatThereAreNot(t *testing.T) {
	if err := connections(&cost.Profile{}, Options{Transports: []string{"pigeons"}}); err == nil || !strings.Contains(err.Error(), "use in-process, shared-memory, tcp") {
		t.Errorf("%v", err)
	}
}
