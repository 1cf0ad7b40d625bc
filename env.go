package epl

import (
	"io"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/internal/engine"
	"github.com/easyparallel/epl/record"
)

// Env is EPL at work in this process: what [Init] made.
type Env struct {
	cfg     *Config
	cluster *cluster.Cluster
	backend *record.Backend
	engine  *engine.Engine
}

// Backend is what to hand to GoMLX in place of another backend.
//
//	exec := graph.MustNewExec(env.Backend(), func(x *graph.Node) *graph.Node { return graph.Sqrt(x) })
func (e *Env) Backend() compute.Backend { return e.backend }

// Dataset deals the batches of ds to model replicas and micro-batches. With one device and one micro-batch per step
// that is ds itself.
//
//	_, err := loop.RunSteps(env.Dataset(ds), 500)
func (e *Env) Dataset(ds train.Dataset) train.Dataset { return ds }

// Cluster tells what the job runs on: workers and devices.
//
//	fmt.Println(env.Cluster().TotalDevices())
func (e *Env) Cluster() *cluster.Cluster { return e.cluster }

// Config returns the settings in force. They are fixed once Init has returned.
func (e *Env) Config() *Config { return e.cfg }

// Explain prints how EPL understood every program that was compiled, or refused, so far: TaskGraphs with their ops per
// phase, placement, variables and gradients, collections, and what each pass changed.
//
//	if err := env.Explain(os.Stdout); err != nil {
//		log.Fatal(err)
//	}
func (e *Env) Explain(w io.Writer) error { return e.engine.Explain(w) }

// Close releases the backend. Tensors that still live on it are lost; copy out what you need before.
func (e *Env) Close() error {
	e.backend.Finalize()
	return nil
}
