// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/pjrt"
)

// A client may be joint: its devices are those of all workers of a job, so that programs can run on all of them and communicate by NCCL. When a worker is
// gone, what the others' GPUs do never ends: whatever waits for a GPU then also listens to the job.

// store is where the processes of a joint client exchange addresses. It implements pjrt.KeyValueStore.
type store struct{ exec.Peers }

// TryGet implements pjrt.KeyValueStore.
func (s store) TryGet(key string) ([]byte, error) {
	value, found, err := s.Peers.TryGet(key)
	if err == nil && !found {
		err = &pjrt.Error{Code: pjrt.NotFound, Message: fmt.Sprintf("there is no key %q", key)}
	}
	return value, err
}

// gpus are those of a process, in their order there.
func (c *client) gpus(process int) []*pjrt.Device {
	all := slices.DeleteFunc(c.Devices(), func(d *pjrt.Device) bool { return d.Process != process })
	slices.SortFunc(all, func(a, b *pjrt.Device) int { return a.ID - b.ID })
	return all
}

// allRanks finds the GPUs of all ranks.
func (c *client) allRanks() (ranks []*pjrt.Device, err error) {
	o := c.opts.Opening
	switch {
	case c.opts.Share > 1, o.Peers == nil && len(o.Workers) > 1:
		return nil, nil
	case o.Workers == nil:
		return c.gpus(0), nil
	}
	for worker, n := range o.Workers {
		gpus := c.gpus(worker)
		if len(gpus) < n {
			return nil, errors.Errorf("%s is to have %s, and has %s: start workers with fewer, or elsewhere", o.Peers.Name(worker), words.Count(n, "device"), words.Count(len(gpus), "GPU"))
		}
		ranks = append(ranks, gpus[:n]...)
	}
	return ranks, nil
}

// Ranks are the GPUs of all ranks of the job, for programs that run on several; nil: not all are in the client of this worker, or a GPU is several devices.
func (d *Device) Ranks() []*pjrt.Device { return d.client.ranks }

// stuck tells whether what GPUs do may never end, because a worker is gone. Then nothing is freed: that would wait, too, and the process ends anyway.
func (c *client) stuck() bool {
	return c.opts.Opening.Peers != nil && c.opts.Opening.Peers.Err() != nil
}

// free closes something of the client, unless that may wait for ever.
func (c *client) free(x interface{ Close() error }) error {
	if c.stuck() {
		return nil
	}
	return x.Close()
}

// grace is how long a copy may take that is begun after the job has failed: what GPUs had finished before can still be read.
const grace = time.Second

// finish waits for a copy, and so for the program that computes what is copied.
func (c *client) finish(program string, done *pjrt.Event) error {
	peers := c.opts.Opening.Peers
	if peers == nil {
		return pjrt.Finish(context.Background(), done)
	}
	what := "read what was uploaded"
	if program != "" {
		what = "read a result of " + program
	}
	job, over := peers.Watch(what)
	defer over()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer context.AfterFunc(job, func() {
		time.Sleep(grace)
		cancel(context.Cause(job))
	})()
	return pjrt.Finish(ctx, done)
}

// call makes a call of C that may wait for other workers. When the job fails it returns, and leaves C to itself.
func (c *client) call(what string, f func() error) error {
	peers := c.opts.Opening.Peers
	if peers == nil {
		return f()
	}
	ctx, over := peers.Watch(what)
	defer over()
	if ctx.Err() != nil { // what is begun now might answer as if nothing had happened
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
