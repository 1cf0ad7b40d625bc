package shard

import (
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Saved is a [Chosen] as data, for another program that is the same: variables are named as by [ir.Program.VariableNames], other
// values by the index of their op in main.
type Saved struct {
	Variables []SavedVariable `json:"variables"` // that are sharded
	Data      []SavedData     `json:"data,omitempty"`
	Groups    []SavedDecision `json:"why"`
	Shared    []string        `json:"shared,omitempty"`
	Start     string          `json:"start"`
	Estimates int             `json:"estimates"`
	Time      time.Duration   `json:"time_ns"`
}

// SavedVariable is a variable of which each device has some rows.
type SavedVariable struct {
	Variable string `json:"variable"`
	Placement
}

// SavedData are data of which each device takes some rows.
type SavedData struct {
	Op     int    `json:"op"`
	Output int    `json:"output"`
	Name   string `json:"name"`
	Placement
}

// SavedDecision is a [Decision].
type SavedDecision struct {
	Variables []string `json:"variables"`
	Placement
	Pinned       bool          `json:"pinned,omitempty"`
	Why          string        `json:"why,omitempty"`
	Bytes        int64         `json:"bytes"`
	Alternatives []Alternative `json:"alternatives,omitempty"`
}

// Save is the choice as data; p is the program that it was made for.
func (c *Chosen) Save(p *ir.Program) *Saved {
	s := &Saved{Start: c.Start, Estimates: c.Estimates, Time: c.Time}
	name := map[*ir.Variable]string{}
	for i, n := range p.VariableNames() {
		v := p.Variables[i]
		name[v] = n
		if placed, ok := c.Choice[v.Param]; ok {
			s.Variables = append(s.Variables, SavedVariable{n, placed})
		}
	}
	named := func(vs []*ir.Variable) (names []string) {
		for _, v := range vs {
			names = append(names, name[v])
		}
		return names
	}
	for _, d := range c.Data {
		i := slices.Index(p.Main.Ops, d.value.Op)
		s.Data = append(s.Data, SavedData{i, d.value.Index, d.Name, d.Placement})
	}
	for _, d := range c.Groups {
		s.Groups = append(s.Groups, SavedDecision{named(d.Variables), d.Placement, d.Pinned, d.Why, d.Bytes, d.Alternatives})
	}
	s.Shared = named(c.Shared)
	return s
}

// In is the choice for a program.
func (s *Saved) In(p *ir.Program) (*Chosen, error) {
	c := &Chosen{Choice: Choice{}, Start: s.Start, Estimates: s.Estimates, Time: s.Time}
	variables := map[string]*ir.Variable{}
	for i, n := range p.VariableNames() {
		variables[n] = p.Variables[i]
	}
	var missing error
	find := func(name string) *ir.Variable {
		v := variables[name]
		if v == nil {
			missing = errors.Errorf("epl: the plan says how variable %q is sharded, and the program has none", name)
		}
		return v
	}
	all := func(names []string) (vs []*ir.Variable) {
		for _, n := range names {
			vs = append(vs, find(n))
		}
		return vs
	}
	for _, x := range s.Variables {
		if v := find(x.Variable); v != nil {
			c.Choice[v.Param] = x.Placement
		}
	}
	for _, x := range s.Data {
		if x.Op < 0 || x.Op >= len(p.Main.Ops) || x.Output < 0 || x.Output >= len(p.Main.Ops[x.Op].Outputs) {
			return nil, errors.Errorf("epl: the plan shards output %d of op %d (%s), which the program does not have here", x.Output, x.Op, x.Name)
		}
		v := p.Main.Ops[x.Op].Outputs[x.Output]
		c.Choice[v] = x.Placement
		c.Data = append(c.Data, Rows{x.Name, x.Placement, v})
	}
	for _, d := range s.Groups {
		c.Groups = append(c.Groups, Decision{all(d.Variables), d.Placement, d.Pinned, d.Why, d.Bytes, d.Alternatives})
	}
	c.Shared = all(s.Shared)
	return c, missing
}
