// Package calibrate measures what the machine that it runs on can do, as a profile for package cost.
//
// What goes in is the engine that devices run programs on, and which transports to measure. What comes out is a [cost.Profile] of one core, with teams of
// more cores, and the links between devices of a worker, workers of a host, and hosts: of the last it knows only what the loopback of TCP can do.
//
// Small programs are compiled and run as segments of a job would be, on as many devices at the same time as the machine has cores for: devices of a job
// share its memory, too. Of many runs the fastest tenth counts, and none takes more than milliseconds: a machine does other things, too. And it is not always
// equally fast: its clock changes, and other machines may share its processor. So all is measured again and again, and the median counts.
package calibrate

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/cores"
)

// Options of [Machine]. The zero value is good.
type Options struct {
	// Inner is what devices run programs on: "cpu" (or ""), or a backend of GoMLX.
	Inner string
	// Transports are those to measure, of [Transports]; nil: all.
	Transports []string
	// Each is how long each program runs in all; 0: [Usual].
	Each time.Duration
	// Progress is told what is measured next.
	Progress func(what string)

	sweeps int // how often all is measured; 0: [sweeps]
}

// Usual is how long each program runs in all.
const Usual = 200 * time.Millisecond

// Machine measures this machine.
func Machine(o Options) (*cost.Profile, error) {
	if o.Each == 0 {
		o.Each = Usual
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	o.sweeps = cmp.Or(o.sweeps, sweeps)
	o.Each /= time.Duration(o.sweeps)
	var all []*cost.Profile
	for n := range o.sweeps {
		said := o
		said.Progress = func(what string) { o.Progress(fmt.Sprintf("%d of %d: %s", n+1, o.sweeps, what)) }
		p, err := sweep(said)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return typical(all), nil
}

// sweeps is how often all is measured.
const sweeps = 5

// sweep measures everything once.
func sweep(o Options) (*cost.Profile, error) {
	all := usable()
	p := &cost.Profile{Name: cost.This, Cores: all, Memory: memory(), Teams: map[int]*cost.Profile{},
		Source: fmt.Sprintf("measured by epl calibrate on %s, %d cores, %s", time.Now().UTC().Format("2006-01-02 15:04 UTC"), all, processor())}
	for threads := 1; ; threads = min(2*threads, all) {
		q := p
		if threads > 1 {
			q = &cost.Profile{Name: cost.This, Memory: p.Memory, Cores: all}
			p.Teams[threads] = q
		}
		e, err := newEngines(o, threads, all/threads)
		if err != nil {
			return nil, err
		}
		err = e.measure(q)
		e.close()
		if err != nil {
			return nil, err
		}
		if threads == all {
			break
		}
	}
	return p, links(p, o)
}

// typical has the medians of profiles that were measured alike.
func typical(all []*cost.Profile) *cost.Profile {
	p := all[0]
	p.Bandwidth = median(all, func(p *cost.Profile) float64 { return p.Bandwidth })
	p.Launch = median(all, func(p *cost.Profile) time.Duration { return p.Launch })
	p.Segment = median(all, func(p *cost.Profile) time.Duration { return p.Segment })
	for key, r := range p.Rates {
		typical := slices.Clone(r)
		for i := range r {
			typical[i].PerSecond = median(all, func(p *cost.Profile) float64 { return p.Rates[key][i].PerSecond })
		}
		p.Rates[key] = typical
	}
	for threads := range p.Teams {
		var teams []*cost.Profile
		for _, q := range all {
			teams = append(teams, q.Teams[threads])
		}
		p.Teams[threads] = typical(teams)
	}
	for _, link := range []func(*cost.Profile) *cost.Link{
		func(p *cost.Profile) *cost.Link { return p.Within }, func(p *cost.Profile) *cost.Link { return p.Inside }, func(p *cost.Profile) *cost.Link { return p.Between },
	} {
		if l := link(p); l != nil {
			latency := median(all, func(p *cost.Profile) time.Duration { return link(p).Latency })
			l.Bandwidth = median(all, func(p *cost.Profile) float64 { return link(p).Bandwidth })
			l.Latency = latency
		}
	}
	return p
}

// median is that of something that profiles have.
func median[T cmp.Ordered](all []*cost.Profile, of func(*cost.Profile) T) T {
	var values []T
	for _, p := range all {
		values = append(values, of(p))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// usable are the cores that this process may use.
func usable() int {
	n := runtime.GOMAXPROCS(0)
	if mine := cores.Mine(); mine != nil {
		n = min(n, len(mine))
	}
	return max(n, 1)
}

// measure fills in what devices can do.
func (e *engines) measure(p *cost.Profile) error {
	p.Fuses, p.Rates, p.Tile = e.fuses, map[string]cost.Rate{}, e.tile()
	e.o.Progress(fmt.Sprintf("%d devices with %d cores: what it takes to start", len(e.devices), e.threads))
	chain := func(n int) (float64, error) {
		w := newProgram()
		a := w.parameter("float32[8,8]")
		b := a
		for range n {
			b = w.op("DotGeneral(%s, %s) {LHSContractingAxes: [1], RHSContractingAxes: [0]}", "float32[8,8]", b, a)
		}
		return e.time(w.text(b))
	}
	one, err := chain(1)
	if err != nil {
		return err
	}
	many, err := chain(33)
	if err != nil {
		return err
	}
	launch := max(many-one, 0) / 32
	p.Launch, p.Segment = duration(launch), duration(max(one-launch, 0))
	for _, m := range measurements() {
		e.o.Progress(fmt.Sprintf("%d devices with %d cores: %s", len(e.devices), e.threads, m.what))
		var r cost.Rate
		for _, x := range m.programs {
			s, err := e.time(x.text)
			if err != nil {
				return err
			}
			// What is faster than the clock can tell would have no rate.
			s = max(s-p.Launch.Seconds()-p.Segment.Seconds(), s/4, 1e-9)
			if x.packed > 0 {
				s = max(s-p.Kernel(&cost.Kernel{Family: cost.Elementwise, Read: x.packed}).Seconds(), s/2)
			}
			if x.rows > 0 { // the rest is what the sums take
				s = max(s-x.work/p.Rate(cost.Reduce, dtypes.Float32, x.work), s/4)
				r = append(r, cost.Point{Size: x.rows, PerSecond: significant(x.rows / s)})
				continue
			}
			r = append(r, cost.Point{Size: x.size, PerSecond: significant(x.work / s / p.Filled(x.m, x.n))})
		}
		p.Rates[m.what] = r
	}
	r := p.Rates[cost.Memory]
	p.Bandwidth = r[len(r)-1].PerSecond
	return nil
}

// significant leaves as many digits as mean something.
func significant(x float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(x))-2)
	return math.Round(x/unit) * unit
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * 1e9).Round(10 * time.Nanosecond)
}

// measurement is a rate of a profile.
type measurement struct {
	what     string // the key of the rate
	programs []program
}

// program is a point of a rate.
type program struct {
	text       string
	size, work float64
	m, n       int64   // of a product
	packed     int64   // bytes of what is multiplied, and of what comes out
	rows       float64 // short ones, if it is about them
}

// measurements are what there is to measure, in the order of the table.
func measurements() (all []measurement) {
	add := func(what string, programs ...program) { all = append(all, measurement{what, programs}) }
	var memory []program
	for _, n := range []int{4 << 10, 64 << 10, 512 << 10, 4 << 20} {
		shape := fmt.Sprintf("float32[%d]", n)
		w := newProgram()
		bytes := 12 * float64(n)
		memory = append(memory, program{text: w.text(w.op("Add(%s, %s)", shape, w.parameter(shape), w.parameter(shape))), size: bytes, work: bytes})
	}
	add(cost.Memory, memory...) // the others need it
	add(cost.Dot+"/float32", dots("float32", 16, 32, 64, 128, 256, 512)...)
	add(cost.Dot+"/bfloat16", dots("bfloat16", 64, 192, 512)...)
	add(cost.Dot+"/float16", dots("float16", 64, 192, 512)...)
	var convolutions []program
	for _, c := range []int{8, 32, 128} {
		w := newProgram()
		image := fmt.Sprintf("float32[4,16,16,%d]", c)
		out := w.op("ConvGeneral(%s, %s) {Axes: {InputBatch: 0, InputChannels: 3, InputSpatial: [1, 2], KernelInputChannels: 2, KernelOutputChannels: 3, KernelSpatial: [0, 1], "+
			"OutputBatch: 0, OutputChannels: 3, OutputSpatial: [1, 2]}, Strides: [1, 1], Paddings: [[1, 1], [1, 1]], ChannelGroupCount: 1, BatchGroupCount: 1}", image, w.parameter(image), w.parameter(fmt.Sprintf("float32[3,3,%d,%d]", c, c)))
		flops := 2 * 4 * 16 * 16 * 9 * float64(c*c)
		convolutions = append(convolutions, program{text: w.text(out), size: flops, work: flops, n: int64(c), packed: 4 * int64(2*4*16*16*c+9*c*c)})
	}
	add(cost.Conv+"/float32", convolutions...)
	vectors := []int{4 << 10, 32 << 10, 256 << 10}
	var elementwise, loops, functions, sums []program
	for _, n := range vectors {
		shape := fmt.Sprintf("float32[%d]", n)
		chain := func(op string) program {
			w := newProgram()
			a, b := w.parameter(shape), w.parameter(shape)
			x := a
			for range 8 {
				x = w.op(op+"(%s, %s)", shape, w.op("Mul(%s, %s)", shape, x, b), a)
			}
			return program{text: w.text(x), size: 16 * float64(n), work: 16 * float64(n)}
		}
		elementwise, loops = append(elementwise, chain("Max")), append(loops, chain("Add"))

		w := newProgram()
		y := w.op("Exp(%s)", shape, w.op("Logistic(%s)", shape, w.op("Erf(%s)", shape, w.parameter(shape))))
		work := float64(cost.Weight("Exp")+cost.Weight("Logistic")+cost.Weight("Erf")) * float64(n)
		functions = append(functions, program{text: w.text(y), size: work, work: work})

		w = newProgram()
		s := w.parameter(fmt.Sprintf("float32[%d,64]", n/64))
		out := w.op("ReduceSum(%s) {Axes: [0]}", "float32[64]", s)
		sums = append(sums, program{text: w.text(out), size: float64(n), work: float64(n)})
	}
	add(cost.Elementwise+"/float32", elementwise...)
	add(cost.Loop+"/float32", loops...)
	add(cost.Math+"/float32", functions...)
	add(cost.Reduce+"/float32", sums...)
	const short = 8
	w := newProgram()
	out := w.op("ReduceSum(%s) {Axes: [0]}", fmt.Sprintf("float32[%d]", short), w.parameter(fmt.Sprintf("float32[%d,%d]", 8<<10, short)))
	add(cost.Rows, program{text: w.text(out), work: short * 8 << 10, rows: 8 << 10})
	return all
}

// dots are products of square matrices.
func dots(dtype string, sizes ...int) (programs []program) {
	size := int64(4)
	if dtype != "float32" {
		size = 2
	}
	for _, n := range sizes {
		w := newProgram()
		shape := fmt.Sprintf("%s[%d,%d]", dtype, n, n)
		out := w.op("DotGeneral(%s, %s) {LHSContractingAxes: [1], RHSContractingAxes: [0]}", shape, w.parameter(shape), w.parameter(shape))
		flops := 2 * math.Pow(float64(n), 3)
		programs = append(programs, program{text: w.text(out), size: flops, work: flops, m: int64(n), n: int64(n), packed: 3 * int64(n*n) * size})
	}
	return programs
}

// writer writes the text of a program of the IR.
type writer struct {
	inputs, ops strings.Builder
	n           int
}

func newProgram() *writer { return &writer{} }

func (w *writer) value() string {
	w.n++
	return fmt.Sprint("%", w.n-1)
}

func (w *writer) parameter(shape string) string {
	v := w.value()
	fmt.Fprintf(&w.inputs, "input %s\n", v)
	fmt.Fprintf(&w.ops, "  %s = Parameter() {Name: \"arg%s\", Shape: %s} -> %s : forward\n", v, v[1:], shape, shape)
	return v
}

// op writes an op; format has its name, inputs and attributes.
func (w *writer) op(format, shape string, inputs ...any) string {
	v := w.value()
	fmt.Fprintf(&w.ops, "  %s = %s -> %s : forward\n", v, fmt.Sprintf(format, inputs...), shape)
	return v
}

func (w *writer) text(out string) string {
	return "program \"calibrate\"\n" + w.inputs.String() + "outputs result\nmain {\n" + w.ops.String() + "  return " + out + "\n}\n"
}

// fast is how long those take that nothing came between: the fastest tenth.
func fast(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/10]
}
