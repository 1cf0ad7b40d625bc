// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
)

// Validate checks every field again, because fields may be changed after [New]; a changed field counts as set by
// code. Unlike New it does not accept words in another case: fields must hold canonical values. It refuses a Config
// that New did not build. Like New's, the error lists every problem.
func (c *Config) Validate() error {
	if c == nil || c.origins == nil {
		return errors.New("epl: this Config was not built by NewConfig, so its empty fields are not defaults; " +
			"build it with NewConfig, then change its fields")
	}
	var ps problems
	refused := make(map[string]bool)
	for i := range keys {
		k := &keys[i]
		value := k.get(c)
		if value == k.def {
			continue // a default need not be a value that may be given: none is 0
		}
		canonical, ok := k.typ.convert(value)
		switch {
		case !ok:
			ps.add(k.refuse(value, c.source(k)))
		case canonical != value:
			ps.add(fmt.Errorf("epl: %s must be written %s in its field",
				k.setting(showGiven(value), c.source(k)), k.show(canonical)))
		default:
			continue
		}
		refused[k.name] = true
	}
	ps.add(c.conflicts(refused)...)
	return ps.err()
}

// conflicts finds values that are allowed by themselves but contradict others, or could have no effect. Rules that
// look at a refused key are left out: its field does not hold what the user wants.
func (c *Config) conflicts(refused map[string]bool) []error {
	var found []error
	for i := range keys {
		k := &keys[i]
		if k.needs == "" || refused[k.name] || refused[k.needs] {
			continue
		}
		if err := c.checkNeeds(k); err != nil {
			found = append(found, err)
		}
	}
	if !refused["pipeline.strategy"] && !refused["pipeline.stages_per_device"] {
		if err := c.checkInterleaved(); err != nil {
			found = append(found, err)
		}
	}
	if !refused["amp.level"] && !refused["amp.dtype"] && !refused["amp.loss_scale"] {
		if err := c.checkDynamic(); err != nil {
			found = append(found, err)
		}
	}
	if !refused["cluster.measure"] && !refused["cluster.description"] && c.Cluster.Measure && c.Cluster.Description != "" {
		measure, description := row("cluster.measure"), row("cluster.description")
		found = append(found, fmt.Errorf("epl: %s and %s both say how fast devices are; leave one of them unset", c.setting(measure), c.setting(description)))
	}
	return found
}

// checkNeeds refuses a key that asks for something while the feature it belongs to is off.
func (c *Config) checkNeeds(k *key) error {
	asks := k.get(c) != k.def || (k.choice && c.source(k).Origin != Default)
	needed := row(k.needs)
	if !asks || needed.get(c) != needed.def {
		return nil
	}
	return fmt.Errorf("epl: %s has no effect while %s is %s; set %s to %s, or leave %s unset",
		c.setting(k), needed.name, needed.show(needed.def), needed.name, needed.on(), k.name)
}

// checkInterleaved requires that Interleaved and several stages per device come together.
func (c *Config) checkInterleaved() error {
	strategy, stages := row("pipeline.strategy"), row("pipeline.stages_per_device")
	interleaved, several := c.Pipeline.Strategy == Interleaved, c.Pipeline.StagesPerDevice > 1
	switch {
	case several && !interleaved:
		return fmt.Errorf("epl: %s needs %s %q, but it is %q; set it to %q, or leave %s at 1",
			c.setting(stages), strategy.name, Interleaved, c.Pipeline.Strategy, Interleaved, stages.name)
	case interleaved && !several:
		return fmt.Errorf("epl: %s needs %s of at least 2, but it is %d; set it to 2 or more, or use the strategy %q",
			c.setting(strategy), stages.name, c.Pipeline.StagesPerDevice, PreferBackward)
	}
	return nil
}

// checkDynamic refuses that a dynamic loss scale is asked for where there is none.
func (c *Config) checkDynamic() error {
	scale := row("amp.loss_scale")
	if c.AMP.Level == "" || c.AMP.DType != BFloat16 || !c.AMP.LossScale.Dynamic || c.source(scale).Origin == Default {
		return nil
	}
	return fmt.Errorf("epl: %s has no effect while amp.dtype is %q; leave it unset, or give a number", c.setting(scale), BFloat16)
}
