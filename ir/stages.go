package ir

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"
)

// Stage is the TaskGraphs that run together on some devices of a model replica. Its ops know on which of them they run:
// see Op.Place.
type Stage struct {
	TaskGraphs []*TaskGraph
	Places     []int // its devices, by their index among those of the model replica
}

// NumPlaces is how many devices a model replica has.
func (p *Program) NumPlaces() int {
	n := 1
	for _, s := range p.Stages {
		for _, at := range s.Places {
			n = max(n, at+1)
		}
	}
	return n
}

// Place is the device of the model replica that has the value, which for what several devices do together depends on
// the output. Leaves are everywhere.
func (v *Value) Place() int {
	switch a := v.Op.Attrs.(type) {
	case *Exchange:
		return a.Places[v.Index]
	case *Merge:
		if a.Places != nil {
			return a.Places[v.Index]
		}
	}
	return v.Op.Place
}

// Places are the devices of the model replica that take part in the op, in the order of its inputs and outputs if they are
// several.
func (op *Op) Places() []int {
	switch a := op.Attrs.(type) {
	case *Exchange:
		return a.Places
	case *Merge:
		if a.Places != nil {
			return a.Places
		}
	}
	return []int{op.Place}
}

// IsExchange tells whether the op is a collective.
func (op *Op) IsExchange() bool { _, ok := op.Attrs.(*Exchange); return ok }

// PlaceOf is the device of the model replica that gives the op its i-th input: one of several if these take part in it.
func (op *Op) PlaceOf(input int) int {
	at := op.Places()
	return at[min(input, len(at)-1)]
}

// ReadOriginals lets a backward op that repeats forward ops read what its stage got from earlier ones in forward, and not
// what an earlier stage computes again: in backward, values flow to earlier stages only. It is the same value. It needs
// Op.Of, and asks for the stages of backward ops in a TaskGraph.
func (p *Program) ReadOriginals(stage func(*Op) int) {
	for _, op := range p.Main.Ops {
		if op.Phase != Backward || op.TaskGraph == nil {
			continue
		}
		for i, in := range op.Inputs {
			if in == nil || in.Op.Origin != Rematerialised || in.Op.Of == nil || in.Op.TaskGraph == nil || stage(in.Op) >= stage(op) {
				continue
			}
			if _, barrier := in.Op.Attrs.(*SchedulingBarrier); barrier {
				op.Inputs[i] = in.Op.Inputs[in.Index]
			} else {
				op.Inputs[i] = in.Op.Of.Op.Outputs[in.Index]
			}
		}
	}
}

// Exchange is a collective between devices of a model replica: it takes a value of each, and gives each one.
type Exchange struct {
	How    Collective
	Reduce Reduction // of AllReduceOf and ReduceScatterOf
	// Dim, of AllGatherOf and AllToAllOf, is that along which what comes is put one after the other.
	Dim int
	// Split, of ReduceScatterOf and AllToAllOf, is the dim along which values are divided.
	Split  int
	Places []int // of inputs, and outputs
	// Replicas: it is between the same device of all model replicas, and Places has that one. AllGatherOf then makes a whole
	// of their parts, see [PartOf].
	Replicas bool
}

// Collective says what an exchange does.
type Collective int

// The collectives.
const (
	AllReduceOf     Collective = iota + 1 // everyone gets the reduction of all values
	AllGatherOf                           // everyone gets all values, one after the other
	ReduceScatterOf                       // everyone gets a part of the reduction of all values
	AllToAllOf                            // everyone gives everyone else a part of its value
)

var collectiveNames = [...]string{"", "all-reduce", "all-gather", "reduce-scatter", "all-to-all"}

// String returns the word used in program text.
func (c Collective) String() string {
	if int(c) < len(collectiveNames) {
		return collectiveNames[c]
	}
	return fmt.Sprintf("collective(%d)", int(c))
}

// Reduction says how values are reduced to one.
type Reduction int

// The reductions.
const (
	ReduceBySum Reduction = iota + 1
	ReduceByMax
	ReduceByMin
)

var reductionNames = [...]string{"", "sum", "max", "min"}

// String returns the word used in program text.
func (r Reduction) String() string {
	if int(r) < len(reductionNames) {
		return reductionNames[r]
	}
	return fmt.Sprintf("reduction(%d)", int(r))
}

// OpExchange is the operation of [Exchange].
const OpExchange OpType = "Exchange"

func init() { newAttrs[OpExchange] = func() Attrs { return &Exchange{} } }

// OpType implements Attrs.
func (*Exchange) OpType() OpType { return OpExchange }

func (*Exchange) arity() arity { return arity{}.list() }

// Emit implements Attrs, by an error: devices exchange values between segments.
func (*Exchange) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("devices exchange values between segments, not inside one")
}

// ShardOf is the part of a variable that the device of the op has: rows Start to Start+Size of a dim. It is given, as the
// variable is.
type ShardOf struct {
	Dim, Start, Size int
}

// OpShardOf is the operation of [ShardOf].
const OpShardOf OpType = "ShardOf"

func init() { newAttrs[OpShardOf] = func() Attrs { return &ShardOf{} } }

// OpType implements Attrs.
func (*ShardOf) OpType() OpType { return OpShardOf }

func (*ShardOf) arity() arity { return arity{}.required(1) }

// Emit implements Attrs, by an error: a segment takes it as an input.
func (*ShardOf) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("the part of a variable is an input of its segment")
}

// stages checks that stages and places are what the rest of the program needs.
func (v *verifier) stages() error {
	if v.p.Stages == nil {
		return nil
	}
	in := map[*TaskGraph]bool{}
	for i, s := range v.p.Stages {
		if len(s.Places) == 0 {
			return errors.Errorf("stage %d has no device", i)
		}
		for _, t := range s.TaskGraphs {
			if in[t] || !slices.Contains(v.p.TaskGraphs, t) {
				return errors.Errorf("TaskGraph %q of stage %d is in two stages, or not in the program", t.Name, i)
			}
			in[t] = true
		}
	}
	for _, t := range v.p.TaskGraphs {
		if !in[t] {
			return errors.Errorf("TaskGraph %q is in no stage", t.Name)
		}
	}
	return nil
}

// places checks the devices of an op.
func (v *verifier) places(op *Op) error {
	n := v.p.NumPlaces()
	if op.Place < 0 || op.Place >= n {
		return errors.Errorf("it is on device %d of a model replica that has %d", op.Place, n)
	}
	var at []int
	switch a := op.Attrs.(type) {
	case *Exchange:
		if at = a.Places; at == nil {
			return errors.New("it exchanges values between no devices")
		}
	case *Merge:
		if at = a.Places; at == nil {
			at = []int{op.Place}
		}
	default:
		return nil
	}
	if len(op.Inputs) != len(at) || len(op.Outputs) != len(at) {
		return errors.Errorf("it has %d inputs and %d outputs for %d devices", len(op.Inputs), len(op.Outputs), len(at))
	}
	for _, x := range at {
		if x < 0 || x >= n {
			return errors.Errorf("it is on device %d of a model replica that has %d", x, n)
		}
	}
	return nil
}
