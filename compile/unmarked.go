// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
)

// wrap is what lets a program train on all devices.
const wrap = "wrap the optimizer in epl.Optimizer, and hand the loop env.Dataset(ds); env is what epl.Init returned, or epl.Of(backend)"

// unmarked is about a program that trains without epl.Optimizer. Its gradients cannot be merged, so it runs as a whole on one device, where
// its weights are those of plain GoMLX. What that cannot do is refused: several workers would each train a model of its own, and settings of
// training steps would have no effect.
func (e *Engine) unmarked(p *ir.Program) error {
	v := p.Unmarked()
	if v == nil {
		return nil
	}
	if n := e.opts.Cluster.WorkerNum(); n > 1 {
		return errors.Errorf("epl: program %q trains the variable %q, but EPL knows no gradients to reduce, so that each of %d workers would train a model of its own: %s; or start one worker",
			p.Name, v.Path, n, wrap)
	}
	if keys := e.opts.steps(); len(keys) > 0 {
		return errors.Errorf("epl: program %q trains the variable %q, but EPL knows no gradients, so that %s would have no effect: %s; or leave the setting out",
			p.Name, v.Path, strings.Join(keys, " and "), wrap)
	}
	if n := e.opts.Cluster.TotalDevices(); n > 1 {
		e.Notice("unmarked", fmt.Sprintf("epl: program %q trains on 1 of %s, because EPL knows no gradients to reduce: %s",
			p.Name, words.Count(n, "device"), wrap), true)
	}
	return nil
}

// steps are the settings that only training steps obey, as far as they were changed.
func (o Options) steps() (keys []string) {
	of := []string{"pipeline", "gradient_checkpoint", "zero", "optimizer", "auto"}
	for _, x := range o.Config.Entries() {
		category, _, _ := strings.Cut(x.Key, ".")
		if x.Changed() && (slices.Contains(of, category) || x.Key == "amp.level") {
			keys = append(keys, fmt.Sprintf("%s = %s", x.Key, x.Value))
		}
	}
	return keys
}
