// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/worker"
)

// saveGroup is the workers that save and load together: what they tell each other of it.
type saveGroup struct {
	job   *worker.Job // nil: this worker is alone
	peers *worker.Peers
}

func newSaveGroup(j *worker.Job) saveGroup {
	if j == nil {
		return saveGroup{}
	}
	return saveGroup{j, j.Peers()}
}

// report is what a worker tells the first one when it has written its file, or has not.
type report struct {
	Number int // of the save
	File   checkpoint.File
	Err    string
}

// handOut gives all workers the text of the first one. All call it at the same point.
func (g saveGroup) handOut(text string) (string, error) {
	if g.job == nil {
		return text, nil
	}
	return g.job.HandOut("checkpoints", text)
}

// decide gives all workers the first one's answer.
func (g saveGroup) decide(yes bool) (bool, error) {
	text, err := g.handOut(fmt.Sprint(yes))
	return text == "true", err
}

// largest gives all workers the largest of their numbers.
func (g saveGroup) largest(n int64) (int64, error) {
	all := []int64{n}
	if g.job == nil {
		return n, nil
	}
	err := g.job.LargestNow("checkpoints", all)
	return all[0], err
}

// ends tells the launcher at which step training ends.
func (c *Checkpoint) ends(loop *train.Loop) error {
	if c.env.job == nil || c.end == loop.EndStep {
		return nil
	}
	c.end = loop.EndStep
	err := c.env.job.End(int64(max(loop.EndStep, 0)))
	if err != nil {
		c.env.job.Trouble(err)
	}
	return err
}

// loaded and saved tell the launcher which checkpoints there are, by global step.
func (g saveGroup) loaded(step int64) {
	if g.job != nil {
		g.job.Loaded(step)
	}
}

func (g saveGroup) saved(step int64) {
	if g.job != nil {
		g.job.Saved(step)
	}
}

// busy tells the others that this worker does something that they may have to wait for, until the returned function is called.
func (g saveGroup) busy(what string) (over func()) {
	if g.job == nil {
		return func() {}
	}
	return g.job.Busy(what)
}

// workerOf is the worker of a rank.
func (g saveGroup) workerOf(rank int) int {
	if g.job == nil {
		return 0
	}
	return g.job.WorkerOf(rank)
}

// firsts are the ranks of the workers' first devices.
func (g saveGroup) firsts() []int {
	if g.job == nil {
		return []int{0}
	}
	return g.job.Firsts()
}

// collect tells the first worker what came of this one's part. On the first one it waits for all, however long they take, and returns their files;
// training goes on meanwhile. An error is that of any worker.
func (g saveGroup) collect(mine report) ([]checkpoint.File, error) {
	var err error
	if mine.Err != "" {
		err = errors.New("epl: " + mine.Err)
	}
	if g.job == nil {
		return []checkpoint.File{mine.File}, err
	}
	if g.job.Worker > 0 {
		text, e := json.Marshal(mine)
		if e == nil {
			e = g.peers.Put(fmt.Sprint("written by ", g.job.Worker), text)
		}
		if err == nil {
			err = e
		}
		return nil, err
	}
	files := []checkpoint.File{mine.File}
	if err != nil {
		err = errors.Errorf("epl: %s: %s", g.peers.Name(0), mine.Err)
	}
	for w := 1; w < len(g.job.Devices); w++ {
		r, e := g.await(w, mine.Number)
		if e != nil {
			return nil, e
		}
		if r.Err != "" && err == nil {
			err = errors.Errorf("epl: %s: %s", g.peers.Name(w), r.Err)
		}
		files = append(files, r.File)
	}
	return files, err
}

// await waits for the report of a worker, or until the job has failed.
func (g saveGroup) await(w, number int) (r report, _ error) {
	for {
		text, found, err := g.peers.TryGet(fmt.Sprint("written by ", w))
		if found {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return r, err
		}
		if found && r.Number == number {
			return r, nil
		}
		if err := g.peers.Err(); err != nil {
			return r, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// together returns nil if what all workers have done has worked, and else why not.
func (g saveGroup) together(number int, mine error) error {
	r := report{Number: number}
	if mine != nil {
		r.Err = sentence(mine)
	}
	_, err := g.collect(r)
	if g.job == nil || g.job.Worker == 0 {
		g.decided(number, err)
	}
	return g.verdict(number, err)
}

// decided tells the others, on the first worker, what became of a save.
func (g saveGroup) decided(number int, err error) {
	if g.job == nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	_ = g.peers.Put(fmt.Sprint("save ", number), []byte(text)) // it fails with the job
}

// verdict is what became of a save, on all workers. On the first one that is known.
func (g saveGroup) verdict(number int, known error) error {
	if g.job == nil || g.job.Worker == 0 {
		return known
	}
	text, err := g.peers.Get(context.Background(), fmt.Sprint("save ", number))
	if err == nil && len(text) > 0 {
		err = errors.New(string(text))
	}
	return err
}
