package main

import (
	"encoding/gob"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

const steps = 5

// part is what a process is to do that was started as a worker: the variable has it as JSON.
type part struct {
	Try     string // by its name
	Batches int    // that are one, of a try on one device
	Backend string
	File    string        // for the result
	Timeout time.Duration // communication.timeout
}

const partVariable = "EPL_EXAMPLE_NCCL"

// result is what a worker found.
type result struct {
	Losses  []float32
	Weights map[string][]float32
	Explain string
	Sent    map[string]int64 // bytes, through the host
}

// played does the part of a worker, if this process is one.
func played() bool {
	text := os.Getenv(partVariable)
	if text == "" {
		return false
	}
	var p part
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = p.play()
	}
	if err != nil {
		fmt.Printf("FAILED: %v\n", err)
		os.Exit(1)
	}
	return true
}

func (p part) play() error {
	t, ok := find(p.Try)
	if !ok {
		return fmt.Errorf("there is no %q", p.Try)
	}
	r, err := t.train(p)
	if err != nil {
		return err
	}
	f, err := os.Create(p.File)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(f).Encode(r); err != nil {
		return err
	}
	return f.Close()
}

// train trains on the devices of all workers; as one process, on one device.
func (t try) train(p part, opts ...epl.Option) (*result, error) {
	cfg, err := epl.NewConfig(t.settings(p.Timeout))
	if err != nil {
		return nil, err
	}
	env, err := epl.Init(cfg, append([]epl.Option{epl.WithInner(p.Backend)}, opts...)...)
	if err != nil {
		return nil, err
	}
	defer env.Close()
	if t.does == different {
		t.bert.hidden += 8 * env.Cluster().WorkerIndex()
	}
	m := t.bert.model(t.stages)
	if p.Batches > 1 {
		m.Batch = equiv.Joined(m.Batch, p.Batches)
	}
	start, err := equiv.Start(m)
	if err != nil {
		return nil, err
	}
	// Adam divides by the size of gradients, which hides wrong factors and makes rounding of small ones large: not with this epsilon.
	opt := epl.Optimizer(optimizer.Adam().LearningRate(0.5).Epsilon(1).Done())
	ds := env.Dataset(equiv.Dataset{Batch: m.Batch})
	if t.does == killed {
		loop := train.NewLoop(train.NewTrainer(env.Backend(), start, m.Build, m.Loss, opt, nil, nil))
		loop.OnStep("say", 0, func(l *train.Loop, _ []*tensors.Tensor) error {
			if l.LoopStep == steps {
				fmt.Println(inTheMiddle)
			}
			return nil
		})
		_, err := loop.RunSteps(ds, 1<<30)
		return nil, err
	}
	run, err := equiv.TrainFrom(start, env.Backend(), ds, m, opt, steps)
	if err != nil {
		return nil, err
	}
	r := &result{Losses: run.Losses, Weights: map[string][]float32{}, Sent: map[string]int64{}}
	for v := range run.Store.IterVariables() {
		if v.Trainable {
			value, err := v.Value()
			if err != nil {
				return nil, err
			}
			if r.Weights[v.Path()], err = tensors.CopyFlatData[float32](value); err != nil {
				return nil, err
			}
		}
	}
	for _, d := range env.Stats().Devices {
		for how, bytes := range d.Sent {
			r.Sent[how] += bytes
		}
	}
	var text strings.Builder
	if err := env.Explain(&text); err != nil {
		return nil, err
	}
	r.Explain = text.String()
	return r, nil
}

// inTheMiddle is what a worker says that is to train for ever.
const inTheMiddle = "trains"
