// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/checkpoint"
)

// Workers save what they have, each in a file of its own, and other workers under another plan go on from there, with the next batch.
func TestWorkersSaveTheirPartsAndLoadThemUnderAnotherPlan(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "sharded checkpoints")
}

func init() {
	parts["sharded checkpoints"] = func(w *part) error {
		m := regression()
		folder := filepath.Join(w.folder, "checkpoints")
		var last *Run
		for i, c := range []struct {
			until  int
			params map[string]any
		}{
			{2, map[string]any{"zero.level": "v2"}},                                                           // each has half of everything
			{4, map[string]any{"cluster.colocate_split_and_replicate": false, "pipeline.num_micro_batch": 2}}, // each has a stage
			{6, nil}, // both have all
		} {
			env, err := w.init(c.params)
			if err != nil {
				return err
			}
			defer env.Close()
			run := &Run{Store: newStore()}
			saver, err := env.Checkpoints(run.Store).Dir(folder).EverySteps(2).Done()
			if err != nil {
				return err
			}
			if int(saver.Step()) != 2*i {
				return errors.Errorf("step %d was loaded, not %d", saver.Step(), 2*i)
			}
			loop := train.NewLoop(train.NewTrainer(env.Backend(), run.Store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
			loop.OnStep("save", 100, saver.OnStep)
			if _, err := loop.RunToGlobalStep(env.Dataset(Dataset{m.Batch}), c.until); err != nil {
				return err
			}
			if err := saver.Save(); err != nil { // after what the loop has saved
				return err
			}
			if err := w.sharesOf(folder, int64(c.until)); err != nil {
				return err
			}
			last = run
		}
		want, err := TrainOn(Plain(), Dataset{Joined(m.Batch, 2)}, m, sgd(), 6)
		if err != nil {
			return err
		}
		w.report("restored:", last)
		return closeTrainable(want, last)
	}
}

// No worker, the first one included, reads or writes more than its share.
func TestWorkersReadAndWriteTheirShareOfACheckpoint(t *testing.T) {
	workers{num: 4, devices: 1}.agree(t, "shares of a checkpoint")
}

func init() {
	parts["shares of a checkpoint"] = func(w *part) error {
		const width, slack = 1024, 2 << 20 // blocks of 1 MiB are read as a whole
		m := Model{"mlp", MLP(2, width, false), Models()[0].Loss, Regression(8, 8)}
		folder := filepath.Join(w.folder, "checkpoints")
		var last *Run
		for i, params := range []map[string]any{
			{"zero.level": "v2"}, // saved
			{"zero.level": "v2"}, // the same parts
			{"zero.level": "v2", "cluster.colocate_split_and_replicate": false, "pipeline.num_micro_batch": 2}, // stages, each over two workers
		} {
			env, err := w.init(params)
			if err != nil {
				return err
			}
			defer env.Close()
			last = &Run{Store: newStore()}
			saver, err := env.Checkpoints(last.Store).Dir(folder).BatchFromConfig().Done()
			if err != nil {
				return err
			}
			loop := train.NewLoop(train.NewTrainer(env.Backend(), last.Store, m.Build, m.Loss, epl.Optimizer(adam()), nil, nil))
			if _, err := loop.RunToGlobalStep(env.Dataset(Dataset{m.Batch}), i+1); err != nil {
				return err
			}
			read := saver.BytesRead()
			if err := saver.Save(); err != nil {
				return err
			}
			all, _, _, err := checkpoint.List(checkpoint.OS, folder)
			if err != nil || len(all) != 1 || len(all[0].Manifest.Files) != 4 {
				return errors.Errorf("checkpoints %v, %v", all, err)
			}
			saved := all[0].Manifest
			mine := saved.Files[w.index()].DataBytes // what it has, as it has now saved it
			if i < 2 && mine > saved.Bytes/4+slack {
				return errors.Errorf("plan %d: a worker of four writes %d of %d bytes", i, mine, saved.Bytes)
			}
			if verified := saved.Bytes / 4; i > 0 && (read > verified+mine+slack || read < verified/2+mine/2) {
				return errors.Errorf("plan %d: a worker that has %d of %d bytes, and verified a fourth, has read %d", i, mine, saved.Bytes, read)
			}
		}
		w.report("trained:", last)
		return nil
	}
}

// sharesOf looks whether workers wrote about as much.
func (w *part) sharesOf(folder string, step int64) error {
	all, _, damaged, err := checkpoint.List(checkpoint.OS, folder)
	if err != nil || len(damaged) > 0 || len(all) != 1 || all[0].Manifest.Step != step || len(all[0].Manifest.Files) != 2 {
		return errors.Errorf("checkpoints %v, %v, %v", all, damaged, err)
	}
	for _, f := range all[0].Manifest.Files {
		if n := all[0].Manifest.Bytes; f.DataBytes < n/5 {
			return errors.Errorf("%s has %d of %d bytes", f.Name, f.DataBytes, n)
		}
		if _, err := os.Stat(filepath.Join(folder, all[0].Name, f.Name)); err != nil {
			return err
		}
	}
	return nil
}

// A worker that cannot write does not end the job: all learn which one it was, and why, and the checkpoint before stays.
func TestAWorkerThatCannotSaveIsNamedAndTrainingGoesOn(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "a disk that is full")
}

func init() {
	parts["a disk that is full"] = func(w *part) error {
		env, err := w.init(map[string]any{"zero.level": "v0"})
		if err != nil {
			return err
		}
		defer env.Close()
		m, run := regression(), &Run{Store: newStore()}
		folder := filepath.Join(w.folder, "checkpoints")
		saver, err := env.Checkpoints(run.Store).Dir(folder).Done()
		if err != nil {
			return err
		}
		loop := train.NewLoop(train.NewTrainer(env.Backend(), run.Store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
		name := filepath.Join(folder, checkpoint.Name(1, 2), checkpoint.FileName(1))
		for step := 1; step <= 3; step++ {
			if _, err := loop.RunToGlobalStep(env.Dataset(Dataset{m.Batch}), step); err != nil {
				return err
			}
			if step == 2 && env.IsMain() { // where the other worker's file is to be
				if err := os.MkdirAll(name, 0o777); err != nil {
					return err
				}
			}
			err := saver.Save()
			if step != 2 && err != nil {
				return err
			}
			if step == 2 && (err == nil || !strings.Contains(err.Error(), "worker 1") || !strings.Contains(err.Error(), "is a directory")) {
				return errors.Errorf("the second save: %v", err)
			}
			all, _, _, err := checkpoint.List(checkpoint.OS, folder)
			if err != nil || len(all) != 1 || all[0].Manifest.Step != []int64{1, 1, 3}[step-1] {
				return errors.Errorf("after step %d: %v %v", step, all, err)
			}
		}
		w.report("trained:", run)
		return nil
	}
}
