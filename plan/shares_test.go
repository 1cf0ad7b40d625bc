package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
)

// onSpeeds plans a program on devices of one worker with these speeds.
func onSpeeds(t *testing.T, p *ir.Program, settings map[string]any, slicing bool, speeds ...float64) (*plan.Plan, *plan.Result) {
	t.Helper()
	c, err := cluster.New(cluster.Spec{Devices: []int{len(speeds)}})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	set, err := passes.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	hardware := &cost.Cluster{Inside: cost.DefaultLink, Between: cost.DefaultLink}
	for _, s := range speeds {
		hardware.Devices = append(hardware.Devices, cost.Device{Profile: cost.Default, Speed: s})
	}
	pl, r, err := plan.Decide(p, cfg, plan.Target{Cluster: c, Passes: set, AsWritten: true, Hardware: hardware, Slicing: slicing})
	if err != nil {
		t.Fatal(err)
	}
	return pl, r
}

func TestSharesAreInProportionToSpeed(t *testing.T) {
	p := recorded(t, language(2, 0))
	for _, c := range []struct {
		speeds []float64
		micro  int
		want   []int // nil: all have as many
	}{
		{[]float64{1, 1, 1}, 2, nil},
		{[]float64{2, 1}, 3, []int{4, 2}},
		{[]float64{3, 2, 1}, 2, []int{3, 2, 1}},
		{[]float64{1, 2}, 1, nil}, // the fast one would take as long for both as the slow one for one
		{[]float64{5, 1}, 1, []int{2, 0}},
		{[]float64{1.01, 1}, 8, nil},
		{[]float64{0.5, 1, 1, 1}, 7, []int{4, 8, 8, 8}},
	} {
		pl, r := onSpeeds(t, p, map[string]any{"pipeline.num_micro_batch": c.micro}, false, c.speeds...)
		var got []int
		if pl.Shares != nil {
			got = pl.Shares.MicroBatches
		}
		if !slices.Equal(got, c.want) || !slices.Equal(r.Schedule.Local.Shares, c.want) || r.Schedule.Local.Instances() != len(c.speeds)*c.micro {
			t.Errorf("speeds %v, %d micro-batches: shares %v, want %v; the schedule has %+v", c.speeds, c.micro, got, c.want, r.Schedule.Local)
		}
	}
}

// A plan says what it shares and why, and is applied without knowing the devices.
func TestSharesAreOfThePlan(t *testing.T) {
	p := recorded(t, language(2, 0))
	pl, r := onSpeeds(t, p, map[string]any{"pipeline.num_micro_batch": 3}, false, 2, 1)
	const why = "model replicas take 4 and 2 micro-batches of the 6 batches of a step, because their devices are unequal: they compute 2 and 1 micro-batches in the same time"
	if !strings.HasPrefix(pl.Shares.Why, why) || !strings.HasSuffix(pl.Shares.Why, "would take 50 % longer") || r.Notes[0].Line != pl.Shares.Why {
		t.Errorf("%q", pl.Shares.Why)
	}
	var text strings.Builder
	if err := pl.Encode(&text); err != nil {
		t.Fatal(err)
	}
	pinned, err := plan.Decode(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(cluster.Spec{Devices: []int{2}})
	if err != nil {
		t.Fatal(err)
	}
	set, err := passes.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := pinned.Apply(p, plan.Target{Cluster: c, Passes: set, AsWritten: true})
	if err != nil || !slices.Equal(again.Schedule.Local.Shares, []int{4, 2}) {
		t.Errorf("pinned: %+v, %v", again.Schedule.Local, err)
	}
}

// Where files are dealt to workers, each reads as much as the others.
func TestFilesThatAreDealtEvenlyLeaveSharesEven(t *testing.T) {
	pl, r := onSpeeds(t, recorded(t, language(2, 0)), map[string]any{"pipeline.num_micro_batch": 3}, true, 2, 1)
	if pl.Shares != nil || len(r.Notes) == 0 || !strings.Contains(r.Notes[0].Line, "io.slicing deals files evenly") {
		t.Errorf("%+v, notes %v", pl.Shares, r.Notes)
	}
}
