package epl

import (
	"io"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/data"
	"github.com/easyparallel/epl/internal/engine"
	"github.com/easyparallel/epl/record"
	"github.com/easyparallel/epl/runtime"
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

// Dataset deals the batches of ds to model replicas and micro-batches: with N of the first and M of the second, one
// training step takes N·M batches, in order, and reads the next ones meanwhile. Batch m·N+r of a step goes to replica r
// as its micro-batch m. At the end of the data, a last step with fewer batches runs on those, and takes the mean over
// them. All batches of a step must have the same shapes. Other programs, such as evaluation, take one batch at a time.
//
//	_, err := loop.RunSteps(env.Dataset(ds), 500)
func (e *Env) Dataset(ds train.Dataset) train.Dataset {
	if e.cluster.TotalDevices() == 1 && e.engine.MicroBatches() == 1 {
		return ds // every step takes one batch
	}
	return data.New(ds, e.engine.Data)
}

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

// Stats is what really ran.
type Stats struct{ Devices []DeviceStats }

// DeviceStats is what one device did: how many programs it ran, or steps of one it took part in, the most bytes that
// lived on it at once, and the bytes it sent, by "all-reduce", "all-gather", "broadcast".
type DeviceStats = runtime.DeviceStats

// Stats tells what the devices of this worker did since it was last called.
//
//	for i, d := range env.Stats().Devices {
//		fmt.Println(i, d.Runs, d.PeakBytes, d.Sent["all-reduce"])
//	}
func (e *Env) Stats() Stats { return Stats{e.engine.Stats()} }

// Close releases the backend. Tensors that still live on it are lost; copy out what you need before.
func (e *Env) Close() error {
	e.backend.Finalize()
	return nil
}
