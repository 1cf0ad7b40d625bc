package trace_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/easyparallel/epl/trace"
)

func TestATimelineIsReadAsItWasWritten(t *testing.T) {
	golden(t, "small.json", written(t, small()))
	rng := rand.New(rand.NewPCG(1, 2))
	kinds := []trace.Kind{trace.Run, trace.Wait, trace.Communicate, trace.Data, trace.Send, trace.Receive}
	tasks := []string{trace.Forward, trace.Backward, trace.Weights, trace.Instance, trace.Accumulate, trace.Apply}
	for range 50 {
		s := &trace.Step{Program: "a \"b\" <c> \u2028", Number: rng.IntN(9), Workers: rng.IntN(3)}
		if rng.IntN(2) == 0 {
			s.Pipeline = trace.Pipeline{Strategy: "ZeroBubble", Stages: rng.IntN(9), Groups: rng.IntN(9), MicroBatches: rng.IntN(9), Replicas: 1}
		}
		for range rng.IntN(30) {
			start := zero.Add(time.Duration(rng.Int64N(1e12))).Local()
			e := trace.Event{Device: rng.IntN(5), Lane: rng.IntN(3), Kind: kinds[rng.IntN(len(kinds))], Name: "x", Start: start,
				End: start.Add(time.Duration(rng.Int64N(1e12))), Bytes: rng.Int64N(2) * rng.Int64()}
			if e.Kind == trace.Run && rng.IntN(3) > 0 {
				e.Task = trace.Task{Kind: tasks[rng.IntN(len(tasks))], Stage: rng.IntN(3), Micro: rng.IntN(3) - 1, Replica: rng.IntN(2)}
			}
			s.Note(e)
		}
		got, err := trace.Read(strings.NewReader(written(t, s)))
		if err != nil {
			t.Fatal(err)
		}
		if got.Program != s.Program || got.Number != s.Number || got.Workers != s.Workers || got.Pipeline != s.Pipeline {
			t.Fatalf("%v is read as %v", s, got)
		}
		if want := s.Events(); !reflect.DeepEqual(got.Events(), want) {
			t.Fatalf("events %v are read as %v", want, got.Events())
		}
	}
}

func TestWhatIsNoTimelineIsRefusedWithTheReason(t *testing.T) {
	event := func(fields string) string {
		return `{"otherData": {"program": "p"}, "traceEvents": [{"name": "n", "ph": "X", "cat": "run", ` + fields + `}]}`
	}
	for _, test := range []struct{ text, want string }{
		{``, "it is empty"},
		{`no JSON`, "invalid character 'o' in literal null"},
		{`[]`, "cannot unmarshal array"},
		{`{"traceEvents": [], "otherData": {}} {}`, "something follows the JSON value, at byte 38"},
		{`{}`, "it has no traceEvents"},
		{`{"traceEvents": []}`, "does not say which program"},
		{`{"traceEvents": [], "otherData": {"startUnixNano": "soon"}}`, `its startUnixNano is "soon"`},
		{`{"traceEvents": [], "otherData": {"startUnixNano": "-1"}}`, `its startUnixNano is "-1"`},
		{`{"traceEvents": [], "otherData": {"workers": -1}}`, "it is of -1 workers"},
		{`{"traceEvents": [], "otherData": {"pipeline": {"stages": -2}}}`, "counts below 0"},
		{event(`"ph": "B"`), `its event 0, "n", has the phase "B"`},
		{event(`"cat": "blink"`), `has the category "blink"`},
		{event(`"pid": -1`), "is of device -1 and lane 0"},
		{event(`"tid": -3`), "is of device 0 and lane -3"},
		{event(`"ts": -1`), "starts at -1 µs"},
		{event(`"ts": 1e300`), "starts at 1e+300 µs"},
		{event(`"dur": 1e13`), "takes 1e+13"},
		{event(`"args": {"bytes": -5}`), "communicates -5 bytes"},
		{event(`"args": {"task": "sleep"}`), `is of the task "sleep"`},
		{event(`"args": {"task": "apply", "stage": -1}`), "is of stage -1"},
		{event(`"args": {"task": "apply", "micro": -2}`), "micro-batch -2"},
	} {
		_, err := trace.Read(strings.NewReader(test.text))
		if err == nil || !strings.HasPrefix(err.Error(), "epl: this is no timeline that EPL_TRACE wrote: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.text, err, test.want)
		}
	}
}

// Whatever is read can be shown, and is read again as the same.
func FuzzRead(f *testing.F) {
	var w bytes.Buffer
	if err := small().WriteChrome(&w); err != nil {
		f.Fatal(err)
	}
	f.Add(w.Bytes())
	f.Add([]byte(`{"traceEvents": [], "otherData": {}}`))
	f.Add([]byte(`{"traceEvents": [{"ph": "X", "cat": "run", "ts": 1e12, "dur": 0.0001, "args": {"task": "weights", "micro": 10000000}}],
		"otherData": {"program": "\u0000\u001b[2J<script>", "workers": 2, "pipeline": {"strategy": "ZeroBubble", "stages": 1000000000, "microBatches": 2}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := trace.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		again, err := trace.Read(strings.NewReader(written(t, s)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(s.Events(), again.Events()) || s.Pipeline != again.Pipeline {
			t.Errorf("%v is read again as %v", s.Events(), again.Events())
		}
		r := s.Report()
		for _, d := range r.Devices {
			if d.Busy < 0 || d.Waiting < 0 || d.Idle < 0 || d.Busy+d.Waiting+d.Idle != r.Span {
				t.Errorf("device %d: %+v of %s", d.Device, d.Times, r.Span)
			}
		}
		if r.Bubble < 0 || r.Bubble > 1 {
			t.Errorf("a bubble of %g", r.Bubble)
		}
		var out bytes.Buffer
		for _, write := range []func() error{
			func() error { return s.WriteText(&out, 80) },
			func() error { return s.WriteSVG(&out, 800) },
			func() error { return s.WriteHTML(&out, 800) },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
