// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/easyparallel/epl/internal/words"
)

// Way is a way to run a program that EPL compared with others.
type Way struct {
	Stages int `json:"stages"`
	// Split is over how many devices a stage is split, 1: it is not; Part is what is, "": all of it.
	Split int    `json:"split"`
	Part  string `json:"part,omitempty"`
	// PerDevice is how many stages share devices, if several do.
	PerDevice    int `json:"stages_per_device,omitempty"`
	Replicas     int `json:"replicas"`
	MicroBatches int `json:"micro_batches"`
	Batches      int `json:"batches,omitempty"` // of a step, if model replicas cannot share them evenly
	Samples      int `json:"samples"`           // of a step
	// Settings are what it sets of the configuration, "key=value".
	Settings []string `json:"settings,omitempty"`

	// Looked: its step was simulated; else Step is a guess.
	Looked bool `json:"looked,omitempty"`
	// Step is how long a step takes, as predicted.
	Step time.Duration `json:"step_ns"`
	Peak int64         `json:"peak_bytes,omitempty"` // of memory, on the device that needs most
	// Unfit: it needs more memory than devices have.
	Unfit bool `json:"unfit,omitempty"`
	// Why says why it was not chosen; "": it was.
	Why string `json:"why,omitempty"`
}

// batches are those of a step.
func (w *Way) batches() int { return cmp.Or(w.Batches, w.Replicas*w.MicroBatches) }

// String names a way: "2 stages × 4 replicas, split over 2, gradient_checkpoint.type=auto".
func (w *Way) String() string {
	var parts []string
	if w.Stages > 1 {
		parts = append(parts, words.Count(w.Stages, "stage"))
	}
	if w.Split > 1 {
		what := "split"
		if w.Part != "" {
			what += " of " + w.Part
		}
		parts = append(parts, fmt.Sprintf("%s over %d", what, w.Split))
	}
	if w.Replicas > 1 || len(parts) == 0 {
		parts = append(parts, words.Count(w.Replicas, "replica"))
	}
	text := strings.Join(parts, " × ")
	for _, x := range w.Settings {
		if !strings.HasPrefix(x, "pipeline.num_") && !strings.HasPrefix(x, "cluster.colocate") {
			text += ", " + x
		}
	}
	return text
}

// DeviceHours is for how long devices are needed for a million samples, all of them together.
func (w *Way) DeviceHours() float64 {
	return w.Step.Hours() * float64(w.Stages/max(w.PerDevice, 1)*w.Split*w.Replicas) / float64(max(w.Samples, 1)) * 1e6
}
