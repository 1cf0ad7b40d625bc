// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"time"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cost"
)

// Probe tells how fast the machine is now. A virtual machine that shares its processor with others is not always as fast.
type Probe struct {
	e        *engines
	products program
	loaded   *loaded
}

// NewProbe makes a probe, which takes some memory until it is closed.
func NewProbe(inner string) (*Probe, error) {
	e, err := newEngines(Options{Inner: inner}, 1, usable())
	if err != nil {
		return nil, err
	}
	x := products("float32", 256, 256, 256)
	l, err := e.load(x)
	if err != nil {
		e.close()
		return nil, err
	}
	return &Probe{e, x, l}, nil
}

// Speed is that of products while all cores compute some, relative to what a profile of this machine says. It takes about 10 ms.
func (x *Probe) Speed(p *cost.Profile) (float64, error) {
	s, err := x.loaded.time(10 * time.Millisecond)
	if err != nil {
		return 0, err
	}
	said := x.products.besides(p) + x.products.work/p.Rate(cost.Dot, dtypes.Float32, x.products.size)
	return said / s, nil
}

// Close frees what the probe took.
func (x *Probe) Close() {
	x.loaded.free()
	x.e.close()
}
