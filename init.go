// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend" // the default inner backend
	"github.com/gomlx/gomlx/support/exceptions"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/compile"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/faults"
	"github.com/easyparallel/epl/internal/hostmem"
	"github.com/easyparallel/epl/internal/near"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/record"
	"github.com/easyparallel/epl/simulate"
	"github.com/easyparallel/epl/trace"
	"github.com/easyparallel/epl/worker"
)

// Environment variables that are not configuration keys.
const (
	// EnvDump names a directory in which every program is written down after every pass.
	EnvDump = "EPL_DUMP"
	// EnvTrace names a file for the timeline of training steps, which Chrome's tracing page and Perfetto show.
	EnvTrace = "EPL_TRACE"
	// EnvTraceSteps says which steps that file has: "3:6" are the four from the third to the sixth, "5" is one. The default is
	// the third, or the last one of a program with fewer.
	EnvTraceSteps = "EPL_TRACE_STEPS"
	// EnvPasses switches passes off and on, as [WithPasses] does.
	EnvPasses = "EPL_PASSES"
	// EnvISA chooses the instructions of EPL's engine for CPUs: "avx512", "avx2" or "portable". The default is the best that
	// the CPU has. It is read when the program starts.
	EnvISA = isa.Env
)

// Option changes how [Init] sets EPL up.
type Option func(*options) error

type options struct {
	localDevices int
	inner        string
	strategy     *record.Strategy
	passes       string
	plan         string
	dashboard    *string // its address; nil: there is none
}

// WithLocalDevices sets the number of devices in this worker. The default is the launcher's, else 1.
//
//	env, err := epl.Init(nil, epl.WithLocalDevices(1))
func WithLocalDevices(n int) Option {
	return func(o *options) error {
		if n < 1 {
			return errors.Errorf("epl: WithLocalDevices(%d): a worker needs at least one device", n)
		}
		o.localDevices = n
		return nil
	}
}

// WithInner chooses what programs run on, as GOMLX_BACKEND would: "cpu", EPL's own engine for CPUs; "xla:cuda", GPUs, by EPL's own
// runner, if the program imports epl/xla; "go", GoMLX's pure-Go backend, op by op; or another backend of GoMLX, which the program must import ("gomlx-xla:cuda" is
// GoMLX's own for GPUs). The default is $GOMLX_BACKEND, else "cpu".
//
//	env, err := epl.Init(nil, epl.WithInner("go"))
func WithInner(backend string) Option {
	return func(o *options) error {
		o.inner = backend
		return nil
	}
}

// WithDefaultStrategy sets the strategy of ops outside every scope, in all programs. There is none by default; a
// program without annotations is data parallel all the same.
//
//	env, err := epl.Init(nil, epl.WithDefaultStrategy(epl.Replicate(1)))
func WithDefaultStrategy(s Strategy) Option {
	return func(o *options) error {
		if err := s.check("WithDefaultStrategy"); err != nil {
			return err
		}
		o.strategy = &s.s
		return nil
	}
}

// WithPasses switches the passes that improve programs: "none" runs what GoMLX built op by op, and so gives the bits
// of the inner backend; "-fused,-common" switches two off. It adds to EPL_PASSES of the environment.
//
//	env, err := epl.Init(nil, epl.WithPasses("none"))
func WithPasses(spec string) Option {
	return func(o *options) error {
		o.passes = spec
		return nil
	}
}

// Init sets EPL up. A nil config means defaults and EPL_* variables of the environment.
//
//	env, err := epl.Init(nil)
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer env.Close()
func Init(cfg *Config, opts ...Option) (env *Env, failed error) {
	var o options
	for i, set := range opts {
		if set == nil {
			return nil, errors.Errorf("epl: option %d of Init is nil: leave it out", i)
		}
		if err := set(&o); err != nil {
			return nil, err
		}
	}
	if cfg == nil {
		var err error
		if cfg, err = NewConfig(nil); err != nil {
			return nil, err
		}
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	planOut := os.Getenv(EnvPlanOut)
	if planOut != "" {
		var err error
		if cfg, err = planned(cfg, &o); err != nil {
			return nil, err
		}
	}
	pinned, cfg, err := o.pin(cfg)
	if err != nil {
		return nil, err
	}
	lookup, handOut, err := environment()
	if err != nil {
		return nil, err
	}
	var kept *memory
	if planOut == "" {
		if kept, err = openMemory(cfg, lookup); err != nil {
			return nil, err
		}
	}
	cl, err := newCluster(cfg, o.localDevices, lookup)
	if err != nil {
		return nil, err
	}
	wrong, err := injected(cl, cfg, lookup)
	if err != nil {
		return nil, err
	}
	name, asked, asWritten, err := innerName(o.inner)
	if err != nil {
		return nil, err
	}
	if err := isa.Check(); err != nil {
		return nil, err
	}
	set, err := passes.Parse(strings.Trim(os.Getenv(EnvPasses)+","+o.passes, ","), func(line string) { log.Print(line) })
	if err != nil {
		return nil, err
	}
	if n := cfg.Cluster.CoresPerDevice; n > 0 && name != "cpu" {
		return nil, errors.Errorf("epl: cluster.cores_per_device is %d, but is of the inner backend \"cpu\", and this program runs on %q; "+
			"leave it unset, or choose that backend", n, name)
	}
	if name == "cpu" && !set[passes.Engine] {
		name = opByOp
	}
	if err := pinned.fits(plan.Target{Cluster: cl, Passes: set, AsWritten: asWritten}); err != nil {
		return nil, err
	}
	var known *cost.Cluster
	var simulated bool
	var changes []simulate.WhatIf
	if planOut != "" || cfg.Cluster.Description != "" {
		if known, err = costs(cl, cfg.Cluster.Description, ""); err == nil && planOut != "" {
			simulated, changes, err = simulation(known)
		}
		if err != nil {
			return nil, err
		}
	}
	traced, steps, err := timeline()
	if err != nil {
		return nil, err
	}
	if err := writable(os.Getenv(EnvDump), traced, cl.WorkerIndex()); err != nil {
		return nil, err
	}
	if cl.WorkerIndex() == 0 {
		misspelt(os.Environ())
	}
	gpus := strings.HasPrefix(name, "xla")
	if planOut != "" && gpus {
		name = opByOp // nothing runs
	}
	inner, err := findInner(name, asked)
	if err != nil {
		return nil, err
	}
	joint := false
	if planOut == "" {
		if joint, err = inner.joint(cfg.Communication.Backend, cl.WorkerNum()); err != nil {
			return nil, err
		}
	}
	var devices []compute.Backend
	open := func(peers exec.Peers) (err error) {
		opening := exec.Opening{Worker: cl.WorkerIndex(), Peers: peers, Kernels: traced != ""}
		for _, w := range cl.Workers() {
			opening.Workers = append(opening.Workers, len(w.Devices))
		}
		if planOut != "" {
			opening = exec.Opening{Workers: []int{1}} // nothing runs
		}
		devices, err = inner.open(opening)
		return err
	}
	if !joint {
		if err := open(nil); err != nil {
			return nil, err
		}
	}
	var j *worker.Job
	left := func() {}
	if (cl.WorkerNum() > 1 || worker.Elastic(lookup)) && planOut == "" {
		if left, err = joinOnce(lookup); err != nil {
			return nil, err
		}
		defer func() {
			if failed != nil {
				left()
			}
		}()
		if j, err = worker.Join(worker.Options{Cluster: cl, Config: cfg, Lookup: lookup, HandOut: handOut, Faults: wrong, Facts: []worker.Fact{
			{Name: "passes (" + EnvPasses + ", WithPasses)", Value: set.String()},
			{Name: "inner backend (" + compute.ConfigEnvVar + ", WithInner)", Value: name},
			{Name: "pinned plan (" + EnvPlanFile + ", WithPlan)", Value: pinned.fact()},
			{Name: "faults (" + EnvFaults + ")", Value: faultsFact()},
			{Name: "timeline (" + EnvTrace + ", " + EnvTraceSteps + ")", Value: timelineFact(traced, steps)},
		}}); err != nil {
			return nil, err
		}
		if cl, err = newCluster(cfg, o.localDevices, with(lookup, cluster.EnvWorkerIndex, strconv.Itoa(j.Worker))); err != nil {
			return nil, err
		}
	}
	if joint {
		err = open(j.Peers())
	} else if name == "cpu" {
		err = ownEngine(devices, set, cfg, cl, j, planOut != "")
	}
	if err != nil {
		if j != nil {
			j.Fail(err)
			_ = j.Leave()
		}
		return nil, err
	}
	allowTF32(devices, cfg.AMP.TF32)
	runner := local.New(j, devices...)
	runner.Spare = cfg.Cluster.DeviceMemory == 0
	injector := newInjector(wrong, cl, j)
	runner.Slow = slowed(cl, injector)
	if (cfg.Auto.AutoParallel || cfg.Cluster.Description != "") && planOut == "" {
		profile := ""
		if gpus {
			profile = gpuProfile(devices[0].DeviceDescription(0), runner.Memory())
		}
		if profile != "" || !gpus || cfg.Cluster.Description != "" {
			if known, err = costs(cl, cfg.Cluster.Description, profile); err != nil {
				return nil, err
			}
		}
	}
	var links *cost.Cluster // as was measured now, or of a machine that was calibrated
	var found *cost.Links
	switch {
	case cfg.Cluster.Measure && planOut == "":
		if known, links, found, err = measured(runner, cl, known, gpus); err != nil {
			if j != nil {
				j.Fail(err)
				_ = j.Leave()
			}
			return nil, err
		}
	case cfg.Cluster.Measure:
		found = &cost.Links{Not: "a plan is made without devices; --cluster describes links"}
	}
	if known == nil && links == nil && !gpus && planOut == "" && cl.TotalDevices() > 1 {
		if links, err = costs(cl, "", ""); err != nil {
			return nil, err
		}
		if links != nil && j != nil {
			onHosts(links, j.Host)
		}
	}
	target := plan.Target{Links: links, Measured: found, Cluster: cl, Passes: set, AsWritten: asWritten, Attention: exec.Attention(devices[0]), Fused: exec.Fused(devices[0]), Hardware: known, Sensitivity: planOut != ""}
	if planOut != "" && gpus {
		target.Attention = func(*ir.Op) bool { return true } // by cuDNN
	}
	var watched *watcher
	if planOut == "" {
		if watched, err = newWatcher(&o, cl.WorkerIndex() == 0); err != nil {
			if j != nil {
				j.Fail(err)
				_ = j.Leave()
			}
			return nil, err
		}
	}
	switch {
	case watched != nil:
		runner.Waits = watched.waits
	case traced != "":
		runner.Waits = new(atomic.Int64)
	}
	host := int64(0)
	if !gpus && planOut == "" { // a plan may be for other machines
		host = hostmem.Total()
	}
	eng := compile.New(compile.Options{Config: cfg, Host: host, Target: target, Simulate: simulated, Changes: changes, Dump: os.Getenv(EnvDump), Trace: traced, TraceSteps: steps,
		Plan: planOut, Pinned: pinned.plan, PinnedFile: pinned.file, TF32: gpus, Job: j, Faults: injector, Observer: watched.observer(), Waits: runner.Waits}, runner)
	backend := record.NewBackend(eng, record.Options{Over: devices[0].Description(),
		Default: o.strategy, AutoParallel: cfg.Auto.AutoParallel, ClipAfterReduction: cfg.Communication.ClipAfterAllreduce,
		HalfType: plan.HalfType(cfg.AMP), LossScale: lossScaleOf(cfg.AMP), NaN: cfg.Reliability.NaN})
	runner.Owner, runner.Advise = backend, eng.Advise
	env = &Env{cfg: cfg, cluster: cl, backend: backend, engine: eng, runner: runner, job: j, faults: injector, left: left, memory: kept, plans: planOut != ""}
	eng.Differ = env.distrust
	if watched != nil {
		watched.env, watched.stats, watched.peak = env, runner.Watch(), known
		if known == nil && gpus { // by its name; plans are decided without
			watched.peak, _ = costs(cl, "", gpuProfile(devices[0].DeviceDescription(0), runner.Memory()))
		}
		env.watcher = watched
	}
	env.leave = sync.OnceValue(env.release)
	backend.Owner = env
	return env, nil
}

// environment reads the variables of the launcher, or what follows from those of what else started the workers: Slurm,
// MPI, Kubernetes. handOut tells that this worker's index is to be given by the rendezvous; 0 stands in for it.
func environment() (lookup func(string) (string, bool), handOut bool, err error) {
	lookup = os.LookupEnv
	a, found, err := cluster.FindAllocation(lookup)
	if err != nil {
		return nil, false, err
	}
	if found {
		vars, err := a.Environ(lookup)
		if err != nil {
			return nil, false, err
		}
		for _, v := range vars {
			name, value, _ := strings.Cut(v, "=")
			lookup = with(lookup, name, value)
		}
	}
	set := func(name string) bool { value, _ := lookup(name); return strings.TrimSpace(value) != "" }
	if set(cluster.EnvNumWorkers) && set(worker.EnvURL) && !set(cluster.EnvWorkerIndex) {
		return with(lookup, cluster.EnvWorkerIndex, "0"), true, nil
	}
	return lookup, false, nil
}

// with adds a variable to an environment.
func with(lookup func(string) (string, bool), name, value string) func(string) (string, bool) {
	return func(n string) (string, bool) {
		if n == name {
			return value, true
		}
		return lookup(n)
	}
}

// newCluster finds out what the job runs on.
func newCluster(cfg *Config, localDevices int, lookup func(string) (string, bool)) (*cluster.Cluster, error) {
	visible, err := cfg.Cluster.VisibleDevices()
	if err != nil {
		return nil, err
	}
	return cluster.FromEnvironment(lookup, localDevices, visible)
}

// timeline reads which file is to get a timeline, and of which steps.
func timeline() (file string, steps trace.Range, err error) {
	file, which := os.Getenv(EnvTrace), strings.TrimSpace(os.Getenv(EnvTraceSteps))
	if which == "" {
		return file, trace.Range{}, nil
	}
	if file == "" {
		return "", steps, errors.Errorf("epl: %s=%q chooses steps of a timeline, but there is none: name its file with %s=trace.json, or unset it",
			EnvTraceSteps, which, EnvTrace)
	}
	if steps, err = trace.ParseRange(which); err != nil {
		return "", steps, errors.WithMessage(err, "epl: "+EnvTraceSteps)
	}
	return file, steps, nil
}

// writable makes the folder for programs, which the first worker writes, and that of a timeline, so that a wrong name is an error at once.
func writable(dump, timeline string, worker int) error {
	if dump != "" && worker == 0 {
		if info, err := os.Stat(dump); err == nil && !info.IsDir() {
			return errors.Errorf("epl: %s=%q is not a directory; name one, it is made if it does not exist", EnvDump, dump)
		}
		if err := os.MkdirAll(dump, 0o755); err != nil {
			return errors.Errorf("epl: %s=%q: cannot make this directory: %v", EnvDump, dump, err)
		}
	}
	if timeline != "" {
		if info, err := os.Stat(timeline); err == nil && info.IsDir() {
			return errors.Errorf("epl: %s=%q is a directory; name a file, such as %s", EnvTrace, timeline, filepath.Join(timeline, "trace.json"))
		}
		if err := os.MkdirAll(filepath.Dir(timeline), 0o755); err != nil {
			return errors.Errorf("epl: %s=%q: cannot make its directory: %v", EnvTrace, timeline, err)
		}
	}
	return nil
}

// variables are those that a user sets, but for the configuration's, which are checked there.
var variables = []string{EnvDump, EnvTrace, EnvTraceSteps, EnvPlanFile, EnvPasses, faults.EnvSlow, faults.Env, isa.Env, cluster.EnvNumWorkers, cluster.EnvWorkerIndex,
	cluster.EnvDevicesPerWorker, cluster.EnvWorkerHosts}

// misspelt warns of variables that EPL does not know, and that are nearly one that it does.
func misspelt(environ []string) {
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		rest, ours := strings.CutPrefix(name, "EPL_")
		if !ours || value == "" || slices.Contains(variables, name) {
			continue
		}
		for _, known := range variables {
			if other := strings.TrimPrefix(known, "EPL_"); near.Distance(near.Letters(rest), near.Letters(other)) <= 2 && len(rest) > 4 {
				warn("the variable %s is not used; did you mean %s?", name, known)
				break
			}
		}
	}
}

// timelineFact is what workers must agree about: a program of which a timeline is made is cut into other segments.
func timelineFact(file string, steps trace.Range) string {
	if file == "" {
		return "none"
	}
	return "steps " + steps.String()
}

// innerName says which inner backend to make. asked is what the user calls it, asWritten tells that it rounds where a program says
// so, as XLA does not.
func innerName(option string) (name, asked string, asWritten bool, err error) {
	name, asked = option, fmt.Sprintf("WithInner(%q)", option)
	chosen := name != ""
	if !chosen {
		name = os.Getenv(compute.ConfigEnvVar)
		asked = compute.ConfigEnvVar + "=" + name
	}
	if name == "" {
		name = "cpu"
	}
	kind, options, _ := strings.Cut(name, ":")
	switch known := compute.List(); {
	case kind == "epl" && !chosen:
		return "", "", false, errors.Errorf("epl: %s=%s makes EPL the backend of GoMLX, but this program calls epl.Init, whose inner backend it names: "+
			"set it to what programs are to run on, such as go; or make the backend by compute.New, and find its Env by epl.Of", compute.ConfigEnvVar, name)
	case kind == "epl":
		return "", "", false, errors.Errorf("epl: the inner backend cannot be EPL itself (%q)", name)
	case kind == "xla" && exec.Registered(kind) == nil:
		return "", "", false, errors.Errorf("epl: %s: the program has no backend for GPUs: import _ \"github.com/easyparallel/epl/xla\"", asked)
	case kind != "cpu" && kind != "xla" && !slices.Contains(known, strings.TrimPrefix(kind, "gomlx-")):
		return "", "", false, errors.Errorf("epl: %s: the program has no backend %q; it has %q; a backend other than \"go\" and \"cpu\" must be imported by the program",
			asked, kind, slices.Sorted(slices.Values(append(slices.DeleteFunc(known, func(k string) bool { return k == "epl" }), "cpu"))))
	}
	if kind == "go" && !strings.Contains(options, "ops_") {
		// Ops one after the other, each on all cores: with ops in parallel the pure-Go backend can deadlock. And in the order in
		// which EPL puts them, which is what the account of memory counts on: left to itself it computes the gradients of all
		// weights last.
		order := "creation_order"
		if strings.Contains(options, "_order") {
			order = ""
		}
		name = "go:" + strings.Join(slices.DeleteFunc([]string{"ops_sequential", order, options}, func(o string) bool { return o == "" }), ",")
	}
	if kind == "cpu" && options != "" {
		return "", "", false, errors.Errorf("epl: %s: the engine \"cpu\" has no options", asked)
	}
	return name, asked, kind == "go" || kind == "cpu", nil
}

// opByOp is GoMLX's backend, with ops one after the other in the order of the program.
const opByOp = "go:ops_sequential,creation_order"

// inner is what makes the devices of this worker.
type inner struct {
	name, asked string
	kind        exec.Kind // nil: a backend of GoMLX
}

// findInner finds out what can be known before a device is made.
func findInner(name, asked string) (in inner, err error) {
	in = inner{name: name, asked: asked}
	kind, options, _ := strings.Cut(name, ":")
	if find := exec.Registered(kind); find != nil {
		in.kind, err = find(options)
	}
	return in, errors.WithMessagef(err, "epl: %s", asked)
}

// joint tells whether the devices of all workers are to be those of one client, which is made when they have met.
func (in inner) joint(backend string, workers int) (bool, error) {
	kind, _, _ := strings.Cut(in.name, ":")
	cannot := errors.Errorf("the inner backend is %q, not \"xla:cuda\"", kind)
	if in.kind != nil {
		cannot = in.kind.Joint()
	}
	if backend == config.BackendNCCL && cannot != nil {
		return false, errors.Errorf("epl: communication.backend is %q, which is for GPUs, but %v; change that, or use %q", backend, cannot, config.BackendAuto)
	}
	return workers > 1 && backend != config.BackendMPI && cannot == nil, nil
}

// open makes the devices. A backend that has several lends as many as are needed.
func (in inner) open(o exec.Opening) (devices []compute.Backend, err error) {
	if in.kind != nil {
		if devices, err = in.kind.Open(o); err != nil && o.Peers != nil && o.Peers.Err() != nil {
			return nil, o.Peers.Err() // it says why, and who
		}
		return devices, errors.WithMessagef(err, "epl: %s", in.asked)
	}
	name := strings.TrimPrefix(in.name, "gomlx-")
	if err := tuneXLA(name); err != nil {
		return nil, err
	}
	for len(devices) < o.Needed() {
		d, err := newInner(name, in.asked)
		if err != nil {
			return nil, err
		}
		all := exec.Devices(d)
		devices = append(devices, all[:min(len(all), o.Needed()-len(devices))]...)
	}
	return devices, nil
}

// newInner makes an inner backend: every device has one of its own. For our engine it is the backend that runs what the engine
// does not know.
func newInner(name, asked string) (inner compute.Backend, err error) {
	if name == "cpu" {
		name = opByOp
	}
	if panicked := exceptions.TryCatch[error](func() { inner, err = compute.NewWithConfig(name) }); panicked != nil {
		err = panicked
	}
	return inner, errors.WithMessagef(err, "epl: %s: the inner backend cannot be made", asked)
}
