// Command unequal measures what unequal devices gain if work is dealt by their speed: virtual devices of one process, which are slowed down on purpose (EPL_SLOW),
// train with equal shares, and with what cluster.description or cluster.measure makes of the same devices. Weights are compared with those of one device.
//
//	go run ./bench/unequal
//
// Devices sleep most of the time, so that two cores do for all of them.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

const (
	width   = 384
	depth   = 4
	samples = 64
	// least is how many times as long as a usual core the fastest device takes: it sleeps most of that.
	least = 6
	// warm are the first steps, in which programs are compiled. They are not counted.
	warm = 2
)

// cluster is devices of different speeds.
type cluster struct {
	speeds []float64
	micro  int // micro-batches of a model replica, if shares are equal
}

var clusters = []cluster{{[]float64{2, 1}, 3}, {[]float64{3, 2, 1}, 2}}

func main() {
	steps := flag.Int("steps", 8, "how many steps are measured of each; the median counts")
	flag.Parse()
	if err := run(*steps); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(steps int) error {
	folder, err := os.MkdirTemp("", "unequal")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "speeds\tshares\tsamples/s\tover equal shares\tweights of one device")
	for _, c := range clusters {
		file, err := c.describe(folder)
		if err != nil {
			return err
		}
		equal := 0.0
		for _, setting := range []map[string]any{nil, {"cluster.description": file}, {"cluster.measure": true}} {
			r, err := c.train(setting, steps)
			if err != nil {
				return err
			}
			equal = cmp.Or(equal, r.throughput)
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%.2f\t%s\n", c, r.shares, r.throughput, r.throughput/equal, r.weights)
		}
	}
	return w.Flush()
}

func (c cluster) String() string { return strings.Join(texts(c.speeds), ":") }

func texts(list []float64) (all []string) {
	for _, x := range list {
		all = append(all, strconv.FormatFloat(x, 'g', 3, 64))
	}
	return all
}

// describe writes the description of the cluster.
func (c cluster) describe(folder string) (string, error) {
	file := filepath.Join(folder, strings.Join(texts(c.speeds), "-")+".yaml")
	text := fmt.Sprintf("workers:\n  - {devices: %d, speed: [%s]}\n", len(c.speeds), strings.Join(texts(c.speeds), ", "))
	return file, os.WriteFile(file, []byte(text), 0o600)
}

type result struct {
	shares     string
	throughput float64
	weights    string // how they compare with those of one device
}

// train trains on the cluster, and on one device.
func (c cluster) train(settings map[string]any, steps int) (r result, err error) {
	var slow []float64
	for _, s := range c.speeds {
		slow = append(slow, least*slices.Max(c.speeds)/s)
	}
	if err := os.Setenv(epl.EnvSlow, strings.Join(texts(slow), ",")); err != nil {
		return r, err
	}
	params := map[string]any{"pipeline.num_micro_batch": c.micro}
	r.shares = "equal"
	for key, value := range settings {
		params[key], r.shares = value, "by "+key
	}
	cfg, err := epl.NewConfig(params)
	if err != nil {
		return r, err
	}
	env, err := epl.Init(cfg, epl.WithLocalDevices(len(c.speeds)))
	if err != nil {
		return r, err
	}
	defer env.Close()
	m := equiv.Model{Name: "perceptron", Build: perceptron, Loss: loss.MeanSquaredError, Batch: equiv.Regression(samples, width)}
	sgd := func() optimizer.Interface { return optimizer.StochasticGradientDescent().WithDecay(false) }
	store := newStore()
	loop := train.NewLoop(train.NewTrainer(env.Backend(), store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
	var took []time.Duration
	last := time.Now()
	loop.OnStep("time", 0, func(*train.Loop, []*tensors.Tensor) error {
		took, last = append(took, time.Since(last)), time.Now()
		return nil
	})
	if _, err := loop.RunSteps(env.Dataset(equiv.Dataset{Batch: m.Batch}), warm+steps); err != nil {
		return r, err
	}
	took = took[warm:]
	slices.Sort(took)
	batches := len(c.speeds) * c.micro
	r.throughput = float64(batches*samples) / took[len(took)/2].Seconds()
	if s := env.Plan().Shares; s != nil {
		r.shares += ": " + s.String()
	}
	one := m
	one.Batch = equiv.Joined(m.Batch, batches)
	want, err := equiv.TrainFrom(newStore(), equiv.Plain(), equiv.Dataset{Batch: one.Batch}, one, sgd(), warm+steps)
	if err != nil {
		return r, err
	}
	r.weights = "the same, within 1e-5"
	if err := equiv.CloseWeights(want, &equiv.Run{Store: store}, 1e-5); err != nil {
		return r, err
	}
	return r, nil
}

// newStore makes every training start from the same weights.
func newStore() *model.Store {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	store.SetParam(optimizer.ParamLearningRate, 1e-4)
	return store
}

func perceptron(scope *model.Scope, x *graph.Node) *graph.Node {
	for i := range depth {
		x = activation.Relu(layers.Dense(scope.In("layer_%d", i), x, true, width))
	}
	return layers.Dense(scope.In("out"), x, true, 1)
}
