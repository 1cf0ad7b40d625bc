package compile

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/explain"
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

// panicError says that planning panicked.
type panicError struct {
	settings []string
	value    any
	stack    []byte
}

// Error implements error.
func (e *panicError) Error() string {
	return fmt.Sprintf("planning with %s panicked: %v; this is a bug of EPL\n%s", strings.Join(e.settings, " "), e.value, e.stack)
}

// advice lists the settings that would help, by how much.
func (o Options) advice(c *Compiled) string {
	all, bug := o.suggest(c)
	text := explain.Advice(all, o.Config.Cluster.DeviceMemory)
	if bug != nil {
		text += fmt.Sprintf("\nepl: %v", bug)
	}
	return text
}

// suggest plans the program again with each technique that is not in use, and returns those that save memory, best
// first. If none is enough, further ones are taken together. A technique that cannot be planned is left out; if planning
// panicked, the first such bug is returned beside the others.
func (o Options) suggest(c *Compiled) (all []explain.Suggestion, bug *panicError) {
	now, limit := c.Account.Peak(), o.Config.Cluster.DeviceMemory
	peakWith := func(settings []string) (int64, error) {
		peak, err := o.peakWith(c, settings)
		if p, ok := err.(*panicError); ok && bug == nil {
			bug = p
		}
		return peak, err
	}
	try := func(settings []string) {
		if peak, err := peakWith(settings); err == nil && peak < now-now/100 {
			all = append(all, explain.Suggestion{Settings: settings, Peak: peak})
		}
	}
	for _, settings := range techniques {
		try(settings)
	}
	best := func(x, y explain.Suggestion) int { return cmp.Compare(x.Peak, y.Peak) }
	slices.SortStableFunc(all, best)
	if len(all) == 0 || all[0].Peak <= limit {
		return all, bug
	}
	together := all[0]
	for _, s := range slices.Clone(all[1:]) {
		if slices.ContainsFunc(s.Settings, func(x string) bool { return sets(together.Settings, x) }) {
			continue
		}
		settings := slices.Concat(together.Settings, s.Settings)
		if peak, err := peakWith(settings); err == nil && peak < together.Peak {
			together = explain.Suggestion{Settings: settings, Peak: peak}
		}
		if together.Peak <= limit {
			break
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

// peakWith is the most that a device would need with other settings; an error if these are no plan.
func (o Options) peakWith(now *Compiled, settings []string) (peak int64, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = &panicError{settings, x, debug.Stack()}
		}
	}()
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		e, err := o.Config.Entry(key)
		if err != nil {
			return 0, err
		}
		if more := key == "pipeline.strategy" || key == "zero.level" && value > e.Value; e.Changed() && !more {
			return 0, errors.Errorf("%s is set already", key)
		}
	}
	if o.Config, err = With(o.Config, settings); err != nil {
		return 0, err
	}
	o.Pinned = nil
	c := newCompiled(now.source, 0, o.Config)
	c.Cut = now.Cut
	if err := o.plan(c, func(string, string, *ir.Program) {}); err != nil {
		return 0, err
	}
	return c.Account.Peak(), nil
}

// With is a configuration with other settings, each "key=value".
func With(cfg *config.Config, settings []string) (*config.Config, error) {
	params := map[string]any{}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		params[key] = value
	}
	return cfg.With(params)
}
