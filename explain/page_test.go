// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
)

// small has one of everything that the page shows: a TaskGraph, a variable with gradient and update, a loss, a
// collection, closures, a long constant.
const small = `program "train"
taskgraph 0 "first" replicate(1) "model.go:12"
variable "/w" %1 trainable update %14 taskgraph 0
input %0
gradient %1 = %13
loss %12
outputs update %1 result
collection "Checkpoints" %4
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[20]} -> float32[20] : forward
  %1 = Parameter() {Name: "/w", Shape: float32[20]} -> float32[20] : forward taskgraph 0
  %2 = Constant() {Value: float32[](0.5)} -> float32[] : forward taskgraph 0
  %3 = Constant() {Value: float32[20]"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="} -> float32[20] : forward taskgraph 0
  %4 = Mul(%0, %1) -> float32[20] : forward taskgraph 0 "model.go:13"
  %5 = While(%4) [closure 0 {
    %6 = Parameter() {Name: "x", Shape: float32[20]} -> float32[20] : forward taskgraph 0
    %7 = LogicalAnd(%6, %6) -> bool[] : forward taskgraph 0
    return %7
  }, closure 1 {
    %8 = Parameter() {Name: "y", Shape: float32[20]} -> float32[20] : forward taskgraph 0
    %9 = Add(%8, %3) -> float32[20] : forward taskgraph 0
    return %9
  }] -> float32[20] : forward taskgraph 0
  %12 = ReduceSum(%5) {Axes: [0]} -> float32[] : forward
  %13 = Mul(%0, %12) -> float32[20] : backward taskgraph 0 by vjp
  %14 = Sub(%1, %13) -> float32[20] : apply taskgraph 0 by variable
  return %14, %12
}
`

func parse(t *testing.T, text string) *ir.Program {
	t.Helper()
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// shorter is small after a pass that drops the While, and writes Sub as Add and Neg.
func shorter(t *testing.T) *ir.Program {
	t.Helper()
	text := regexp.MustCompile(`(?s)  %5 = While.*?\}\].*?\n`).ReplaceAllString(small, "")
	text = strings.Replace(text, "ReduceSum(%5)", "ReduceSum(%4)", 1)
	text = strings.Replace(text, "  %14 = Sub(%1, %13)", "  %15 = Neg(%13) -> float32[20] : apply taskgraph 0\n  %14 = Add(%1, %15)", 1)
	return parse(t, text)
}

// writePage writes the page of some stages, and returns it with its model.
func writePage(t *testing.T, c *Program, stages ...Stage) (string, *pageModel) {
	t.Helper()
	c.Number = 7
	var page bytes.Buffer
	if err := c.WritePage(&page, stages); err != nil {
		t.Fatal(err)
	}
	return page.String(), readModel(t, page.String())
}

// readModel takes the model out of a page as a browser would.
func readModel(t *testing.T, page string) *pageModel {
	t.Helper()
	_, rest, ok := strings.Cut(page, `<script type="application/json" id="model">`)
	encoded, _, closed := strings.Cut(rest, `</script>`)
	if !ok || !closed {
		t.Fatal("the page has no model")
	}
	var m pageModel
	if err := json.Unmarshal([]byte(encoded), &m); err != nil {
		t.Fatalf("the page's model: %v", err)
	}
	return &m
}

// linesOf lists what the model shows of a stage, in program text as far as it goes.
func (m *pageModel) linesOf(t *testing.T, stage int) []string {
	t.Helper()
	var lines []string
	for _, slot := range m.Slots {
		shown := 0
		for _, l := range slot {
			if stage < l.From || stage >= l.Until {
				continue
			}
			if shown++; shown > 1 {
				t.Errorf("two lines at the same place of stage %d: %v", stage, slot)
			}
			if l.Kind == opLine {
				lines = append(lines, fmt.Sprintf("%d = %s(%s) -> %s : %d %d %s %q", l.ID, l.Op, l.Inputs,
					strings.ReplaceAll(l.Outputs, ";", ", "), l.Phase, l.TaskGraph-1, l.Origin, l.Source))
			}
		}
	}
	return lines
}

// linesOfProgram lists the ops of a program as linesOf does, functions first, closures behind the op that uses them.
func linesOfProgram(p *ir.Program) []string {
	var lines []string
	var body func(f *ir.Func)
	body = func(f *ir.Func) {
		for _, op := range f.Ops {
			var ins, shapes []string
			for _, v := range op.Inputs {
				ins = append(ins, strings.TrimPrefix(v.String(), "%"))
			}
			for _, v := range op.Outputs {
				shapes = append(shapes, ir.ShapeText(v.Shape))
			}
			taskGraph, origin := -1, ""
			if op.TaskGraph != nil {
				taskGraph = op.TaskGraph.ID
			}
			if op.Origin != ir.Recorded {
				origin = op.Origin.String()
			}
			lines = append(lines, fmt.Sprintf("%d = %s(%s) -> %s : %d %d %s %q", op.ID, op.Type(), strings.Join(ins, " "),
				strings.Join(shapes, ", "), op.Phase, taskGraph, origin, op.Source))
			for _, g := range op.Funcs {
				if g.Parent != nil {
					body(g)
				}
			}
		}
	}
	for _, f := range p.Funcs {
		body(f)
	}
	body(p.Main)
	return lines
}

func TestThePageHasEveryOpOncePerStageInOrder(t *testing.T) {
	recorded := parse(t, small)
	stages := []Stage{{"recorded", "what GoMLX built", "", recorded}, {"same", "to do nothing", "", recorded.Clone()}, {"shorter", "to be short", "", shorter(t)}}
	_, m := writePage(t, &Program{Result: plan.Result{Recorded: recorded}}, stages...)
	if len(m.Stages) != len(stages) {
		t.Fatalf("%d stages, want %d", len(m.Stages), len(stages))
	}
	for i, s := range stages {
		if got := m.Stages[i]; got.Name != s.Name || got.Why != s.Why || got.Ops != s.Program.NumOps() {
			t.Errorf("stage %d is described as %+v", i, got)
		}
		got, want := m.linesOf(t, i), linesOfProgram(s.Program)
		if !slices.Equal(got, want) {
			t.Errorf("stage %s:\n%s\nwant:\n%s", s.Name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestStagesSayWhatTheirPassAddedChangedAndRemoved(t *testing.T) {
	recorded := parse(t, small)
	_, m := writePage(t, &Program{Result: plan.Result{Recorded: recorded}},
		Stage{"recorded", "", "", recorded}, Stage{"same", "", "", recorded.Clone()}, Stage{"shorter", "", "", shorter(t)})
	var got []string
	for _, s := range m.Stages {
		got = append(got, fmt.Sprintf("%s +%d ~%d -%d", s.Name, s.Added, s.Changed, s.Removed))
	}
	// Added: the Neg. Changed: ReduceSum and what was Sub. Removed: the While and the four ops of its closures.
	want := []string{"recorded +0 ~0 -0", "same +0 ~0 -0", "shorter +1 ~2 -5"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestThePictureHasABarForEveryOpThatComputes(t *testing.T) {
	slots, sizes := align([]Stage{{"recorded", "", "", parse(t, small)}})
	p := drawPicture(slots, sizes, 0, parse(t, small).TaskGraphs)
	got := map[ir.Phase]int{}
	for _, l := range p.Lanes {
		for _, b := range l.Bars {
			got[l.Phase] += strings.Count(b.Path, "M")
		}
		if got[l.Phase] != l.Ops {
			t.Errorf("%s has %d bars for %d ops", l.Phase, got[l.Phase], l.Ops)
		}
	}
	if got[ir.Forward] != 3 || got[ir.Backward] != 1 || got[ir.Apply] != 1 || p.Ops != 5 {
		t.Errorf("bars: %v of %d ops", got, p.Ops)
	}
}

func TestThePictureStaysOnePathPerTaskGraphAndReadableWithThousandsOfOps(t *testing.T) {
	var text strings.Builder
	text.WriteString("program \"long\"\ntaskgraph 0 \"a\" replicate(1)\ntaskgraph 1 \"b\" replicate(1)\nmain {\n" +
		"  %0 = Constant() {Value: float32[](1)} -> float32[] : forward\n")
	const ops = 6000
	for i := 1; i <= ops; i++ {
		fmt.Fprintf(&text, "  %%%d = Neg(%%%d) -> float32[] : forward taskgraph %d\n", i, i-1, i/100%2)
	}
	fmt.Fprintf(&text, "  return %%%d\n}\n", ops)
	program := parse(t, text.String())
	page, _ := writePage(t, &Program{Result: plan.Result{Recorded: program}}, Stage{"recorded", "", "", program})
	slots, sizes := align([]Stage{{"recorded", "", "", program}})
	p := drawPicture(slots, sizes, 0, program.TaskGraphs)
	if n := len(p.Lanes[0].Bars); n != 2 {
		t.Errorf("%d paths for 2 TaskGraphs", n)
	}
	if p.Pitch < 2.5 || float64(p.PerRow)*p.Pitch > pictureWidth-pictureLeft || p.Height > 600 {
		t.Errorf("pitch %v, %d bars in a row, height %d", p.Pitch, p.PerRow, p.Height)
	}
	if perOp := len(page) / ops; perOp > 150 {
		t.Errorf("%d bytes of page per op", perOp)
	}
}

const hostile = `</script><img src=x onerror=alert(1)>`

func TestHostileNamesStayText(t *testing.T) {
	text := strings.NewReplacer(`"train"`, fmt.Sprintf("%q", hostile), `"first"`, fmt.Sprintf("%q", hostile), `"/w"`, fmt.Sprintf("%q", "/"+hostile),
		`"arg0"`, fmt.Sprintf("%q", hostile), `"Checkpoints"`, fmt.Sprintf("%q", hostile), `"model.go:13"`, fmt.Sprintf("%q", hostile),
		`"model.go:12"`, fmt.Sprintf("%q", hostile)).Replace(small)
	program := parse(t, text)
	c := &Program{Result: plan.Result{Recorded: program}, Err: errors.New(hostile)}
	page, m := writePage(t, c, Stage{hostile, hostile, "", program}, Stage{"same", hostile, "", program.Clone()})
	for _, bad := range []string{"<img", "onerror=alert(1)>"} {
		if i := strings.Index(page, bad); i >= 0 {
			t.Errorf("the page has %q: …%s…", bad, page[max(0, i-80):i+40])
		}
	}
	for _, tag := range []string{"<script", "</script>", "<style", "</style>"} {
		if want := map[bool]int{true: 2, false: 1}[strings.Contains(tag, "script")]; strings.Count(page, tag) != want {
			t.Errorf("%d times %s, want %d", strings.Count(page, tag), tag, want)
		}
	}
	if !strings.Contains(page, "<h1>"+html.EscapeString(hostile)) {
		t.Error("the program's name is not shown as it is")
	}
	var words []string
	for _, l := range slices.Concat(m.Slots...) {
		words = append(words, l.Attrs, l.Source)
	}
	if m.TaskGraphs[0] != hostile || m.Stages[0].Name != hostile || !slices.Contains(words, hostile) || !slices.Contains(words, fmt.Sprintf("%q", "/"+hostile)) {
		t.Error("names changed on their way into the model")
	}
}

func TestThePageNeedsNothingFromOutsideAndRunsNoScriptButItsOwn(t *testing.T) {
	program := parse(t, small)
	page, _ := writePage(t, &Program{Result: plan.Result{Recorded: program}}, Stage{"recorded", "", "", program})
	scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1)
	if len(scripts) != 1 {
		t.Fatalf("%d scripts", len(scripts))
	}
	hash := sha256.Sum256([]byte(scripts[0][1]))
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)
	want := fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'", base64.StdEncoding.EncodeToString(hash[:]))
	if policy == nil || html.UnescapeString(policy[1]) != want {
		t.Errorf("policy %q, want %q", policy, want)
	}
	for _, bad := range []string{" src=", "@import", "url(", "<link", "innerHTML"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if addresses := regexp.MustCompile(`https?://[^"]*`).FindAllString(page, -1); !slices.Equal(addresses, []string{"http://www.w3.org/2000/svg"}) {
		t.Errorf("addresses in the page: %q", addresses) // that one is a name, not fetched
	}
}

func TestTheSummaryIsThereWithoutJavaScript(t *testing.T) {
	program := parse(t, small)
	c := &Program{Result: plan.Result{Recorded: program}, Err: errors.New(`program "train": epl: too few devices`)}
	page, _ := writePage(t, c, Stage{"recorded", "", "07-train-00-recorded.txt", program})
	static, _, _ := strings.Cut(page, "<script")
	for _, want := range []string{
		"<h1>train ", "<b>Refused.</b> epl: too few devices", "/w</th>", `<a class="v" href="#v13">%13</a>`, "model.go:12", "Checkpoints",
		`class="swatch tg c0"`, "07-train-00-recorded.txt",
	} {
		if !strings.Contains(static, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestTaskGraphsBeyondTheColoursGetThemAgain(t *testing.T) {
	for id, want := range map[int]string{-1: "tg outside", 0: "tg c0", 7: "tg c7", 8: "tg c0 again", 17: "tg c1"} {
		if got := colourClass(id); got != want {
			t.Errorf("TaskGraph %d: %q, want %q", id, got, want)
		}
	}
	if !strings.Contains(pageCSS, fmt.Sprintf(".c%d {", colours-1)) {
		t.Error("page.css does not have all colours")
	}
}
