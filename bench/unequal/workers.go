// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"

	"github.com/easyparallel/epl/bench/meeting"
)

// onWorkers trains on workers, each with one device, on the core that it is given. The first one's result counts.
func onWorkers(j job, on []int) (r result, err error) {
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		return r, err
	}
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return r, err
	}
	met, err := meeting.New(len(on))
	if err != nil {
		return r, err
	}
	defer met.Close()
	var first bytes.Buffer
	var all []*exec.Cmd
	for i, core := range on {
		c := exec.Command(taskset, "-c", strconv.Itoa(core), self, "-worker", string(text))
		c.Env = append(os.Environ(), met.Environment(i, 1)...)
		c.Stderr = os.Stderr
		if i == 0 {
			c.Stdout = &first
		}
		if err := c.Start(); err != nil {
			return r, err // the others end when the meeting does
		}
		all = append(all, c)
	}
	for _, c := range all {
		err = errors.Join(err, c.Wait())
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(first.Bytes(), &r)
}

// work is what a worker does.
func work(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	r, err := j.train(1)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
