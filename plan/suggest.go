// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/ir"
)

// techniques are the settings that may save memory, each a list of "key=value".
var techniques = [][]string{
	{"gradient_checkpoint.type=auto"},
	{"zero.level=v0"},
	{"zero.level=v1"},
	{"zero.level=v2"},
	{"offload.level=v0"},
	{"amp.level=O1", "amp.dtype=bfloat16"},
	{"optimizer.num_apply_group=4"},
	{"pipeline.strategy=PreferBackward"},
}

// Suggestion is settings that would save memory, and what the device that needs most would need then.
type Suggestion struct {
	Settings []string // "key=value"
	Peak     int64
	Fits     bool // each device has as much as it would need
}

// Suggest plans a program again with each technique that is not in use, and returns those that save memory, best first; now is what
// the device needs that has least room. If none is enough, further ones are taken together. A technique that cannot be planned is left out; if
// planning panicked, the first such bug is returned beside the others.
func Suggest(p *ir.Program, cfg *config.Config, t Target, now int64) (all []Suggestion, bug error) {
	// with is what would be needed with settings: too much if they are no plan.
	with := func(settings []string) (s Suggestion) {
		s = Suggestion{settings, math.MaxInt64, false}
		defer func() {
			if x := recover(); x != nil && bug == nil {
				bug = errors.Errorf("planning with %s panicked: %v; this is a bug of EPL\n%s", strings.Join(settings, " "), x, debug.Stack())
			}
		}()
		for _, setting := range settings {
			key, value, _ := strings.Cut(setting, "=")
			e, err := cfg.Entry(key)
			if more := key == "pipeline.strategy" || key == "zero.level" && value > e.Value; err != nil || e.Changed() && !more {
				return s
			}
		}
		if other, err := cfg.With(settings); err == nil {
			if _, r, err := Decide(p, other, t); err == nil {
				f := r.Fullest(r.Account, func(rank int) int64 { return t.Memory(cfg, rank) })
				s.Peak, s.Fits = f.Needs.Total(), f.Has > 0 && !f.Over()
			}
		}
		return s
	}
	for _, settings := range techniques {
		if s := with(settings); s.Peak < now-now/100 {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(x, y Suggestion) int { return cmp.Compare(x.Peak, y.Peak) })
	if len(all) == 0 {
		return all, bug
	}
	together := all[0]
	for _, s := range all[1:] {
		if together.Fits {
			break
		}
		if slices.ContainsFunc(s.Settings, func(x string) bool { return sets(together.Settings, x) }) {
			continue
		}
		if more := with(slices.Concat(together.Settings, s.Settings)); more.Peak < together.Peak {
			together = more
		}
	}
	if together.Peak < all[0].Peak {
		all = slices.Insert(all, 0, together)
	}
	return all, bug
}

// sets tells whether settings have the key of another.
func sets(settings []string, other string) bool {
	key, _, _ := strings.Cut(other, "=")
	return slices.ContainsFunc(settings, func(s string) bool { return strings.HasPrefix(s, key+"=") })
}
