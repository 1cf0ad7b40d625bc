// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	_ "embed"
	"html/template"
	"io"

	"github.com/pkg/errors"
)

// Glance is a plan in short, for who watches a training.
type Glance struct {
	Summary [][2]string // names and texts
	Devices []GlanceDevice
}

// GlanceDevice is what a device is for.
type GlanceDevice struct {
	Rank, Worker int
	Replica      int // -1: the plan does not use it
	Works        []GlanceWork
	Peak         int64 // bytes that it needs
}

// GlanceWork is a TaskGraph on a device, or a part of it.
type GlanceWork struct {
	TaskGraph   int
	Text, Share string
}

//go:embed glance.html
var glanceHTML string

// Glance is nil if the program does not train, or was refused before it was placed.
func (c *Program) Glance() *Glance {
	if c.Plan == nil || c.Placement == nil || c.Account == nil || !c.Recorded.IsTraining() {
		return nil
	}
	g := &Glance{}
	for _, line := range c.summary() {
		g.Summary = append(g.Summary, [2]string{line.Name, line.Text})
	}
	devices := c.devices()
	for worker, indices := range c.Plan.Cluster.Workers {
		for range indices {
			d := devices[len(g.Devices)]
			x := GlanceDevice{Rank: d.Rank, Worker: worker, Replica: d.Replica, Peak: d.peak}
			for _, w := range d.Works {
				x.Works = append(x.Works, GlanceWork(w))
			}
			g.Devices = append(g.Devices, x)
		}
	}
	return g
}

// WritePlan writes the plan of a training program as a page without scripts.
func (c *Program) WritePlan(w io.Writer) error {
	plan, err := newPlanPage(c)
	if err != nil || plan == nil {
		return err
	}
	return errors.Wrap(pageTemplate.ExecuteTemplate(w, "glance", map[string]any{"Plan": plan, "Name": c.Recorded.Name, "CSS": template.CSS(pageCSS)}), "epl: internal error: the page of a plan")
}
