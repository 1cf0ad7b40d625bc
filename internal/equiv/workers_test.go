package equiv

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/rendezvous"
)

// Tests with several workers start this test binary again, once for each worker, to play a part.
const (
	partVariable   = "EPLTEST_PART"   // which
	folderVariable = "EPLTEST_FOLDER" // where the workers meet
	hostVariable   = "EPLTEST_HOST"   // where they meet instead: an address of the first worker

	backendVariable  = "EPLTEST_BACKEND"  // communication.backend
	colocateVariable = "EPLTEST_COLOCATE" // cluster.colocate_split_and_replicate
)

// parts are what workers can play. What they return is an error of the test.
var parts = map[string]func(w *part) error{}

func TestMain(m *testing.M) {
	flag.Parse()
	if *onGPUs || os.Getenv("GOMLX_BACKEND") == fake {
		gpusForAll()
	}
	name := os.Getenv(partVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	w := &part{folder: os.Getenv(folderVariable)}
	if err := w.play(name); err != nil {
		fmt.Printf("FAILED: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// part is a worker in a test.
type part struct {
	folder string
	jobs   int
}

func (w *part) play(name string) error {
	if os.Getenv(backendVariable) == "mpi" { // it cannot be started twice, so one job lasts until the end
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		defer env.Close()
	}
	return parts[name](w)
}

// init begins one more job with the other workers.
func (w *part) init(params map[string]any, opts ...epl.Option) (*epl.Env, error) {
	w.jobs++
	url := fmt.Sprintf("file://%s/job%d", w.folder, w.jobs)
	if host := os.Getenv(hostVariable); host != "" {
		url = "first://" + net.JoinHostPort(host, fmt.Sprint(29700+w.jobs))
	}
	if err := os.Setenv(rendezvous.EnvURL, url); err != nil {
		return nil, err
	}
	cfg, err := epl.NewConfig(w.params(params))
	if err != nil {
		return nil, err
	}
	return epl.Init(cfg, opts...)
}

// index is that of the worker.
func (w *part) index() int {
	i, err := strconv.Atoi(os.Getenv(cluster.EnvWorkerIndex))
	if err != nil {
		panic(err)
	}
	return i
}

// params adds what all parts want.
func (w *part) params(params map[string]any) map[string]any {
	all := map[string]any{"cluster.colocate_split_and_replicate": true, "communication.timeout": "1m"}
	if colocate := os.Getenv(colocateVariable); colocate != "" {
		all["cluster.colocate_split_and_replicate"] = colocate == "true"
	}
	if backend := os.Getenv(backendVariable); backend != "" {
		all["communication.backend"] = backend
	}
	maps.Copy(all, params)
	return all
}

// report lets the test compare what the workers found.
func (w *part) report(what string, run *Run) {
	h := sha256.New()
	fmt.Fprint(h, run.Losses)
	for v := range run.Store.IterVariables() {
		if v.Trainable {
			fmt.Fprint(h, v.Path(), numbers(v.MustValue()))
		}
	}
	fmt.Printf("%s %x\n", what, h.Sum(nil))
}

// workers is a job for a test.
type workers struct {
	num, devices int
	hosts        string // as in EPL_WORKER_HOSTS; "": one host
	env          []string
	on           func(worker int) []string // a command that runs another one, somewhere else; nil: here
}

func (w workers) String() string {
	s := fmt.Sprintf("%dx%d", w.num, w.devices)
	if w.hosts != "" {
		s += " on " + w.hosts
	}
	return s
}

// play starts the workers, which play a part, and returns their outputs when all have ended.
func (w workers) play(t *testing.T, name string) (outputs []string, errs []error) {
	t.Helper()
	folder := t.TempDir()
	outputs, errs = make([]string, w.num), make([]error, w.num)
	var wg sync.WaitGroup
	for i := range w.num {
		cmd := w.command(t, folder, name, i)
		wg.Go(func() {
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			errs[i] = cmd.Run()
			outputs[i] = out.String()
		})
	}
	wg.Wait()
	return outputs, errs
}

// command is one worker.
func (w workers) command(t *testing.T, folder, name string, index int) *exec.Cmd {
	t.Helper()
	args := []string{os.Args[0]}
	if w.on != nil {
		args = append(w.on(index), args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), partVariable+"="+name, folderVariable+"="+folder,
		fmt.Sprintf("%s=%d", cluster.EnvNumWorkers, w.num), fmt.Sprintf("%s=%d", cluster.EnvWorkerIndex, index),
		fmt.Sprintf("%s=%d", cluster.EnvDevicesPerWorker, w.devices))
	if w.hosts != "" {
		cmd.Env = append(cmd.Env, cluster.EnvWorkerHosts+"="+w.hosts)
	}
	cmd.Env = append(cmd.Env, w.env...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// agree plays a part that must succeed on all workers, with the same report.
func (w workers) agree(t *testing.T, name string) {
	t.Helper()
	outputs, errs := w.play(t, name)
	for i, err := range errs {
		if err != nil {
			t.Errorf("worker %d: %v\n%s", i, err, outputs[i])
		} else if report(outputs[i]) != report(outputs[0]) {
			t.Errorf("worker %d has other results than worker 0:\n%s\n%s", i, outputs[i], outputs[0])
		}
	}
	if !strings.Contains(report(outputs[0]), " ") {
		t.Errorf("there is no report: %q", outputs[0])
	}
}

// notice is a line that EPL logs: the first worker says it for all, or it is about connections, of which each has its own.
var notice = regexp.MustCompile(`(?m)^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d )?epl: .*\n`)

// report is what a worker says of its results.
func report(output string) string { return notice.ReplaceAllString(output, "") }

// layouts of jobs: shared memory, TCP, both.
var layouts = []workers{
	{num: 2, devices: 1},
	{num: 2, devices: 2, hosts: "a,b"},
	{num: 4, devices: 1},
	{num: 4, devices: 1, hosts: "a,a,b,b"},
}

func TestSeveralWorkersGiveTheWeightsOfOneDeviceOnTheSameSamples(t *testing.T) {
	for _, w := range layouts {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "same weights") })
	}
}

func init() {
	parts["same weights"] = func(w *part) error {
		for _, m := range []Model{
			{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)},
			{"transformer", Transformer0, Models()[1].Loss, Tokens(2, 16, 32)},
		} {
			for _, micro := range []int{1, 3} {
				if err := w.sameWeights(m, micro, nil, 5); err != nil {
					return err
				}
			}
		}
		return nil
	}
	parts["random plans"] = func(w *part) error {
		for seed := range 6 {
			r := rand.New(rand.NewSource(int64(seed)))
			m := trainable()[r.Intn(len(trainable()))]
			params := map[string]any{
				"communication.max_splits":        1 + r.Intn(6),
				"communication.num_communicators": 1 + r.Intn(3),
				"communication.sparse_as_dense":   r.Intn(2) == 0,
			}
			if err := w.sameWeights(m, 1+r.Intn(4), params, 3); err != nil {
				return errors.Wrapf(err, "seed %d", seed)
			}
		}
		return nil
	}
}

// sameWeights trains over all workers, and on one device of this worker alone.
func (w *part) sameWeights(m Model, micro int, params map[string]any, steps int) error {
	all := map[string]any{"pipeline.num_micro_batch": micro}
	maps.Copy(all, params)
	env, err := w.init(all)
	if err != nil {
		return err
	}
	defer env.Close()
	got, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), steps)
	if err != nil {
		return err
	}
	single := m
	single.Batch = Joined(m.Batch, env.Cluster().TotalDevices()*micro)
	want, err := TrainOn(Plain(), Dataset{single.Batch}, single, sgd(), steps)
	if err != nil {
		return err
	}
	w.report(fmt.Sprintf("%s, %d micro-batches:", m.Name, micro), got)
	return cmp.Or(CloseWeights(want, got, 1e-5), CloseLosses(want, got, 1e-4))
}

func TestRandomPlansOverSeveralWorkersGiveTheWeightsOfOneDevice(t *testing.T) {
	workers{num: 3, devices: 1, hosts: "a,b,a"}.agree(t, "random plans")
}

// Where every worker has one device, a job of several has the very bits of one worker with as many devices; otherwise sums
// are taken in another order.
func TestSeveralWorkersDoWhatSeveralDevicesOfOneDo(t *testing.T) {
	for _, w := range []workers{layouts[0], layouts[1], {num: 3, devices: 1, hosts: "a,b,c"}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "as one worker") })
	}
}

func init() {
	parts["as one worker"] = func(w *part) error {
		for _, m := range Models() {
			for _, o := range optimizers {
				if err := w.asOneWorker(m, o.make, nil); err != nil {
					return errors.Wrapf(err, "%s, %s", m.Name, o.name)
				}
			}
		}
		for _, params := range []map[string]any{
			{"communication.fp16": true},
			{"communication.fp16": true, "amp.level": "O1", "amp.loss_scale": 32768},
			{"communication.gradients_reduce_method": "sum"},
			{"communication.clip_after_allreduce": true},
			{"communication.max_splits": 1, "communication.num_communicators": 1},
		} {
			clipped := func() optimizer.Interface { return epl.ClipByGlobalNorm(sgd(), 0.1) }
			if err := w.asOneWorker(regression(), clipped, params); err != nil {
				return errors.Wrapf(err, "%v", params)
			}
		}
		for _, params := range []map[string]any{nil, {"communication.fp16": true}} {
			m := maskedLosses()[0].model(extras{mask: true, weights: true})
			if err := w.asOneWorker(m, sgd, params); err != nil {
				return errors.Wrapf(err, "masked, %v", params)
			}
		}
		return nil
	}
}

// asOneWorker trains over all workers, and over as many devices of this worker alone.
func (w *part) asOneWorker(m Model, opt func() optimizer.Interface, params map[string]any) error {
	env, err := w.init(params)
	if err != nil {
		return err
	}
	defer env.Close()
	got, err := TrainOn(env.Backend(), env.Dataset(first(m, 3*env.Cluster().TotalDevices())), m, epl.Optimizer(opt()), 3)
	if err != nil {
		return err
	}
	alone, err := w.alone(env.Cluster().TotalDevices(), params)
	if err != nil {
		return err
	}
	defer alone.Close()
	want, err := TrainOn(alone.Backend(), alone.Dataset(Dataset{m.Batch}), m, epl.Optimizer(opt()), 3)
	if err != nil {
		return err
	}
	w.report(m.Name+":", got)
	if w.sameOrder(env) {
		return SameBits(want, got)
	}
	if params["communication.fp16"] != nil { // partial sums are rounded
		return CloseWeights(want, got, 1e-3)
	}
	return CloseLosses(want, got, 1e-3) // by loss, because of Adam
}

// alone makes EPL in this worker without the others.
func (w *part) alone(devices int, params map[string]any) (*epl.Env, error) {
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if clustered(name) {
			if err := os.Unsetenv(name); err != nil {
				return nil, err
			}
			defer os.Setenv(name, value)
		}
	}
	cfg, err := epl.NewConfig(w.params(params))
	if err != nil {
		return nil, err
	}
	return epl.Init(cfg, epl.WithLocalDevices(devices))
}

// clustered tells whether a variable makes this process one of several workers.
func clustered(name string) bool {
	switch name {
	case cluster.EnvNumWorkers, cluster.EnvWorkerIndex, cluster.EnvDevicesPerWorker, cluster.EnvWorkerHosts, rendezvous.EnvURL:
		return true
	}
	return strings.HasPrefix(name, "OMPI_COMM_WORLD_") || strings.HasPrefix(name, "PMI_")
}

// sameOrder tells whether sums are taken in the order of ranks: not where some are taken inside a worker or a host first.
func (w *part) sameOrder(env *epl.Env) bool {
	c := env.Cluster()
	hosts := map[string]bool{}
	for _, x := range c.Workers() {
		hosts[x.Host] = true
	}
	return os.Getenv(backendVariable) == "" && c.TotalDevices() == c.WorkerNum() && (len(hosts) == 1 || len(hosts) == c.WorkerNum())
}

// first returns the first n batches of a model.
func first(m Model, n int) train.Dataset {
	return custom(func(yield func(train.Batch, error) bool) {
		for i := range n {
			if !yield(batchOf(m, i), nil) {
				return
			}
		}
	})
}

// Whatever the workers start from, they go on from what the first one has.
func TestVariablesStartEqual(t *testing.T) {
	for _, w := range layouts[:2] {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "start equal") })
	}
}

func init() {
	parts["start equal"] = func(w *part) error {
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		defer env.Close()
		m := regression()
		run := &Run{Store: newStore()}
		run.Store.SetParam(model.ParamInitialSeed, int64(42+env.Cluster().WorkerIndex()))
		loop := train.NewLoop(train.NewTrainer(env.Backend(), run.Store, m.Build, m.Loss, epl.Optimizer(optimizer.Adam().Done()), nil, nil))
		ds := env.Dataset(Dataset{m.Batch})
		if _, err := loop.RunSteps(ds, 2); err != nil {
			return err
		}
		w.report("different seeds:", run)
		// One worker changes a variable between steps: the first one's value counts.
		for v := range run.Store.IterVariables() {
			if v.Trainable && env.Cluster().WorkerIndex() == 1 {
				if err := v.SetValue(tensors.FromShape(v.Shape())); err != nil {
					return err
				}
			}
		}
		if _, err := loop.RunSteps(ds, 2); err != nil {
			return err
		}
		w.report("one changed a variable:", run)
		return nil
	}
}

// The last step of the data may lack batches for some workers, or for all micro-batches of one.
func TestAnIncompleteLastStepOverSeveralWorkers(t *testing.T) {
	for _, w := range layouts[:3] {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "incomplete step") })
	}
}

func init() {
	parts["incomplete step"] = func(w *part) error {
		m := regression()
		for _, micro := range []int{1, 2} {
			for missing := range 4 {
				params := map[string]any{"pipeline.num_micro_batch": micro}
				env, err := w.init(params)
				if err != nil {
					return err
				}
				alone, err := w.alone(env.Cluster().TotalDevices(), params)
				if err != nil {
					return err
				}
				n := max(3*env.Cluster().TotalDevices()*micro-missing, 1)
				var runs []*Run
				for _, e := range []*epl.Env{env, alone} {
					r := &Run{Store: newStore()}
					loop := train.NewLoop(train.NewTrainer(e.Backend(), r.Store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
					if _, err := loop.RunEpochs(e.Dataset(first(m, n)), 2); err != nil {
						return err
					}
					runs = append(runs, r)
					defer e.Close()
				}
				w.report(fmt.Sprintf("%d batches, %d micro-batches:", n, micro), runs[0])
				if err := CloseWeights(runs[1], runs[0], 1e-5); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// With io.slicing every worker has its own data, more or less of it, and each sample is used once.
func TestWorkersWithDataOfTheirOwn(t *testing.T) {
	for _, w := range layouts[:3] {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "own data") })
	}
}

func init() {
	parts["own data"] = func(w *part) error {
		m := regression()
		for _, micro := range []int{1, 2} {
			env, err := w.init(map[string]any{"io.slicing": true, "pipeline.num_micro_batch": micro})
			if err != nil {
				return err
			}
			defer env.Close()
			// Worker i has i fewer batches than it needs for three steps.
			num, devices := env.Cluster().WorkerNum(), len(env.Cluster().LocalDevices())
			have := func(worker int) int { return max(1, 3*devices*micro-2*worker) }
			mine := env.Cluster().WorkerIndex()
			ds := custom(func(yield func(train.Batch, error) bool) {
				for i := range have(mine) {
					if !yield(batchOf(m, 1000*mine+i), nil) {
						return
					}
				}
			})
			got := &Run{Store: newStore()}
			loop := train.NewLoop(train.NewTrainer(env.Backend(), got.Store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
			if _, err := loop.RunEpochs(env.Dataset(ds), 1); err != nil {
				return err
			}
			w.report("own data:", got)
			// One device takes the same samples, step by step.
			want := &Run{Store: newStore()}
			trainer := train.NewTrainer(Plain(), want.Store, m.Build, m.Loss, sgd(), nil, nil)
			for step := range 3 {
				var ins, labels [][]*tensors.Tensor
				for worker := range num {
					for i := step * devices * micro; i < min((step+1)*devices*micro, have(worker)); i++ {
						in, label := m.Batch(1000*worker + i)
						ins, labels = append(ins, in), append(labels, label)
					}
				}
				if _, err := trainer.TrainStep(train.Batch{Inputs: concat(ins), Labels: concat(labels)}); err != nil {
					return err
				}
			}
			if err := closeTrainable(want, got); err != nil {
				return err
			}
		}
		return nil
	}
}

// Metrics, and evaluation, are the same on every worker.
func TestEvaluationIsTheSameOnEveryWorker(t *testing.T) {
	workers{num: 2, devices: 2}.agree(t, "evaluation")
}

func init() {
	parts["evaluation"] = func(w *part) error {
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		defer env.Close()
		m := regression()
		mean := []metric.Interface{metric.NewMeanMetric("mean", "m", "loss", func(_ *model.Scope, labels, predictions []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Abs(graph.Sub(labels[0], predictions[0])))
		}, nil)}
		store := newStore()
		trainer := train.NewTrainer(env.Backend(), store, m.Build, m.Loss, epl.Optimizer(sgd()), mean, mean)
		loop := train.NewLoop(trainer)
		metrics, err := loop.RunSteps(env.Dataset(Dataset{m.Batch}), 5)
		if err != nil {
			return err
		}
		fmt.Println("training", metrics)
		evaluated, err := trainer.Eval(env.Dataset(first(m, 5)))
		if err != nil {
			return err
		}
		fmt.Println("evaluation", evaluated)
		return nil
	}
}

// Checkpoints are written by the first worker, and read by all.
func TestCheckpointsAreWrittenOnceAndRestoredEverywhere(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "checkpoints")
}

func init() {
	parts["checkpoints"] = func(w *part) error {
		m := regression()
		folder := filepath.Join(w.folder, "checkpoints")
		var last *Run
		for _, until := range []int{4, 8} {
			env, err := w.init(nil)
			if err != nil {
				return err
			}
			defer env.Close()
			run := &Run{Store: newStore()}
			handler, err := checkpoint.Build(run.Store).Dir(folder).Done()
			if err != nil {
				return err
			}
			loop := train.NewLoop(train.NewTrainer(env.Backend(), run.Store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
			saved := 0
			train.EveryNSteps(loop, 2, "save", 100, env.OnFirstWorker(func(l *train.Loop, metrics []*tensors.Tensor) error {
				saved++
				return handler.SaveOnStepFn(l, metrics)
			}))
			ds := custom(func(yield func(train.Batch, error) bool) { // go on where the last run stopped
				for i := 2 * (until - 4); yield(batchOf(m, i), nil); i++ {
				}
			})
			if _, err := loop.RunToGlobalStep(env.Dataset(ds), until); err != nil {
				return err
			}
			if (saved > 0) != env.FirstWorker() {
				return errors.Errorf("worker %d saved %d times", env.Cluster().WorkerIndex(), saved)
			}
			last = run
		}
		single := m
		single.Batch = Joined(m.Batch, 2)
		want, err := TrainOn(Plain(), Dataset{single.Batch}, single, sgd(), 8)
		if err != nil {
			return err
		}
		w.report("restored:", last)
		return closeTrainable(want, last)
	}
}

// closeTrainable compares the trainable variables of two runs: loops differ in the others.
func closeTrainable(want, got *Run) error {
	for v := range want.Store.IterVariables() {
		if v.Trainable {
			x, y := numbers(v.MustValue()), numbers(got.Store.GetVariable(v.Path()).MustValue())
			if diff, norm := distance(x, y); !(diff <= 1e-5*(norm+1e-3)) {
				return errors.Errorf("variable %s differs by %g at a norm of %g", v.Path(), diff, norm)
			}
		}
	}
	return nil
}

// Results in Local collections are those of a worker, results in Global ones those of all.
func TestCollectionsAreOfAWorkerOrOfAll(t *testing.T) {
	outputs, errs := workers{num: 2, devices: 2, hosts: "a,b"}.play(t, "collections")
	for i, want := range []string{
		// Rank r has the numbers 10·r and 10·r+1: worker 0 has ranks 0 and 1.
		"global 124 15.5 [0 1 10 11 20 21 30 31]\nlocal 22 5.5 [0 1 10 11]\n",
		"global 124 15.5 [0 1 10 11 20 21 30 31]\nlocal 102 25.5 [20 21 30 31]\n",
	} {
		if errs[i] != nil || outputs[i] != want {
			t.Errorf("worker %d: %v, %q, want %q", i, errs[i], outputs[i], want)
		}
	}
}

func init() {
	parts["collections"] = func(w *part) error {
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		defer env.Close()
		exec, err := model.NewExec(env.Backend(), newStore(), func(scope *model.Scope, x *graph.Node) []*graph.Node {
			scope.Store().SetTraining(x.Graph(), true)
			v := scope.VariableWithValue("w", float32(1))
			epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), graph.ReduceAllMean(graph.Mul(x, v.NodeValue(x))))
			var all []*graph.Node
			for i, c := range []epl.Collection{epl.GlobalSum, epl.GlobalMean, epl.GlobalConcat, epl.LocalSum, epl.LocalMean, epl.LocalConcat} {
				y := graph.ReduceAllSum(x)
				switch i % 3 {
				case 1:
					y = graph.ReduceAllMean(x)
				case 2:
					y = graph.AddScalar(x, 0)
				}
				y = graph.AddScalar(y, float32(i)) // no two are the same
				epl.AddToCollection(c, y)
				all = append(all, y)
			}
			return all
		})
		if err != nil {
			return err
		}
		ds := custom(func(yield func(train.Batch, error) bool) {
			for r := range 4 {
				if !yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions([]float32{float32(10 * r), float32(10*r + 1)}, 2)}}, nil) {
					return
				}
			}
		})
		for batch, err := range env.Dataset(ds).Iter() {
			if err != nil {
				return err
			}
			results, err := exec.Call(batch.Inputs[0])
			if err != nil {
				return err
			}
			minus := func(i, times int) []float64 { // what was added to tell it from others
				all := numbers(results[i])
				for k := range all {
					all[k] -= float64(i * times)
				}
				return all
			}
			fmt.Println("global", minus(0, 4)[0], minus(1, 1)[0], minus(2, 1))
			fmt.Println("local", minus(3, 2)[0], minus(4, 1)[0], minus(5, 1))
		}
		return nil
	}
}
