package shard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Choice says which variables are sharded, by their parameters, and along which dim. The others are on every device as a whole.
// What else it names is data of a split stage, an input or what another stage makes: every device is offered its rows, so that
// what is computed from these may be sharded, too.
type Choice map[*ir.Value]Placement

// Choose chooses how the variables and data of split TaskGraphs are sharded: see [Search], which also tells why.
func Choose(p *ir.Program) (Choice, error) {
	c, err := Search(p)
	if err != nil {
		return nil, err
	}
	return c.Choice, nil
}

// Chosen is a choice, and how it was made.
type Chosen struct {
	Choice Choice
	Data   []Rows     // that are sharded
	Groups []Decision // by bytes, the largest first
	// Shared are variables that are whole because other stages read them.
	Shared    []*ir.Variable
	Start     string        // the plan that the search began with
	Estimates int           // how many choices were compared
	Time      time.Duration // of forward and backward, estimated
}

// Rows are data of which each device takes a part.
type Rows struct {
	Name string // of the input; or the op that makes it, with its line
	Placement
	value *ir.Value
}

// Decision is what was chosen for variables that have the same part in repeated layers.
type Decision struct {
	Variables []*ir.Variable
	Placement Placement
	Pinned    bool   // by the user
	Why       string // what the sharded dim is for the op that reads it
	// Bytes is what each device has of the variables, with what the optimizer keeps for them.
	Bytes int64
	// Alternatives are other ways that were estimated, the best first.
	Alternatives []Alternative
}

// Search chooses how the variables and data of split TaskGraphs are sharded. What the user pinned is as he says. For the others it
// starts from the best of a few plans that are known to be good (choose_seeds.go), and changes the sharding of one group of
// variables, or of an input, after the other as long as that makes the step cheaper (choose_search.go). It counts estimates and not
// seconds, and so finds the same on every worker.
func Search(p *ir.Program) (*Chosen, error) {
	if !slices.ContainsFunc(p.Stages, func(s ir.Stage) bool { return len(s.Places) > 1 }) {
		return &Chosen{Choice: Choice{}}, nil
	}
	c, err := newChooser(p)
	if err != nil {
		return nil, err
	}
	q := p
	if len(c.inputs) > 0 { // what Partition makes of it, if they are sharded
		q = p.Clone()
		unflatten(q)
		if c, err = newChooser(q); err != nil {
			return nil, err
		}
	}
	if err := c.pin(); err != nil {
		return nil, err
	}
	found := &Chosen{Choice: Choice{}, Shared: c.shared}
	if len(c.vars) > 0 {
		found = c.search()
	}
	return found.in(p, q), nil
}

// in is the choice for a program, of which it was made for a copy.
func (c *Chosen) in(p, copied *ir.Program) *Chosen {
	values := map[*ir.Value]*ir.Value{}
	for i, op := range copied.Main.Ops {
		for j, v := range op.Outputs {
			values[v] = p.Main.Ops[i].Outputs[j]
		}
	}
	variables := map[*ir.Variable]*ir.Variable{}
	for i, v := range copied.Variables {
		variables[v] = p.Variables[i]
	}
	choice := Choice{}
	for v, pl := range c.Choice {
		choice[values[v]] = pl
	}
	c.Choice = choice
	for i := range c.Data {
		c.Data[i].value = values[c.Data[i].value]
	}
	for i, v := range c.Shared {
		c.Shared[i] = variables[v]
	}
	for _, d := range c.Groups {
		for i, v := range d.Variables {
			d.Variables[i] = variables[v]
		}
	}
	return c
}

// pin lets variables be sharded as the user says.
func (c *chooser) pin() error {
	for _, x := range c.vars {
		for _, pin := range x.v.TaskGraph.Pins {
			if x.v.Path != pin.Variable && !strings.HasSuffix(x.v.Path, "/"+pin.Variable) {
				continue
			}
			dim := pin.Dim
			if dim < 0 {
				dim += x.v.Param.Shape.Rank()
			}
			t := x.v.TaskGraph
			if x.pinned && x.ways[0].Dim != dim {
				return errors.Errorf("epl: TaskGraph %q (%s): Shard(%q, %d) is for variable %q, which another Shard pins to dim %d: leave one of them out",
					t.Title(), t.Source, pin.Variable, pin.Dim, x.v.Path, x.ways[0].Dim)
			}
			if dim < 0 || dim >= x.v.Param.Shape.Rank() {
				return errors.Errorf("epl: Shard(%q, %d) of TaskGraph %q (%s): variable %q, %s, has no such dim: pin one from 0 to %d",
					pin.Variable, pin.Dim, t.Title(), t.Source, x.v.Path, ir.ShapeText(x.v.Param.Shape), x.v.Param.Shape.Rank()-1)
			}
			at := slices.IndexFunc(x.ways, func(w way) bool { return w.Kind == Sharded && w.Dim == dim })
			if at < 0 {
				return errors.Errorf("epl: Shard(%q, %d) of TaskGraph %q (%s): dim %d of variable %q, %s, has fewer rows than there are devices, %d: "+
					"pin another dim, or use fewer devices", pin.Variable, pin.Dim, t.Title(), t.Source, dim, x.v.Path, ir.ShapeText(x.v.Param.Shape), x.k)
			}
			x.ways, x.pinned, x.follows = x.ways[at:at+1], true, nil
		}
	}
	return nil
}

// Lines describe the choice for people; [Listing] has the variables.
func (c *Chosen) Lines() []string {
	var lines []string
	for _, v := range c.Shared {
		lines = append(lines, fmt.Sprintf("%s is not sharded: another stage reads it", v.Path))
	}
	if len(c.Groups) == 0 {
		return lines
	}
	lines = append(lines, fmt.Sprintf("shardings: best of %d estimates, from the plan %q: forward and backward take %s", c.Estimates, c.Start, short(c.Time)))
	for _, d := range c.Data {
		lines = append(lines, fmt.Sprintf("%s %s: each device computes with its rows where the weights for that are whole", d.Name, d.Placement))
	}
	return lines
}

// short prints a duration with three digits.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}
