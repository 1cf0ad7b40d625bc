// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cost"
)

// peak is what all devices together can compute, in flops per second, by the profile of -profile; 0: that is not known. On CPUs it is what "epl calibrate" measured of this
// machine, if it has.
func (f flags) peak(env *epl.Env) (float64, error) {
	name := f.profile
	if on := cmp.Or(f.backend, os.Getenv("GOMLX_BACKEND"), "cpu"); name == "" && on == "cpu" {
		name = cost.This
	}
	if name == "" {
		return 0, nil
	}
	p, err := cost.Find(name)
	switch {
	case err != nil && f.profile == "":
		return 0, nil // it has not
	case err != nil:
		return 0, fmt.Errorf("gpt: -profile: %w", err)
	}
	const large = 1e12 // flops of a product
	onHost := map[string]int{}
	for _, w := range env.Cluster().Workers() {
		onHost[w.Host] += len(w.Devices)
	}
	sum := 0.0
	for _, n := range onHost {
		each, faster := p, 1.0
		if p.Cores > 0 { // devices of a host share them; if there are more devices than cores, some wait
			each, faster = p.On(p.Threads(n))
			n = min(n, p.Cores)
		}
		sum += float64(n) * faster * each.Rate(cost.Dot, f.precision(), large)
	}
	return sum, nil
}
