package ir

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// A tensor can be divided over the model replicas: it is laid out flat, and each model replica has as many consecutive
// elements. Past the end there are zeros, so that the parts of all are of one shape and all run the same program.

// PartShape is the shape of a model replica's part of a tensor.
func PartShape(whole shapes.Shape, replicas int) shapes.Shape {
	return shapes.Make(whole.DType, (whole.Size()+replicas-1)/replicas)
}

// PartOf is the part of a variable that the device's model replica has. If the devices of a model replica share the
// variable, it is that of the rows Start to Start+Size of dim Dim; if Dim is -1, of all of it. It is given, as the variable
// is.
type PartOf struct {
	Dim, Start, Size int
}

// Box is the shape of what a device would have of a variable without other model replicas.
func (a *PartOf) Box(variable shapes.Shape) shapes.Shape {
	if a.Dim < 0 {
		return variable
	}
	s := variable.Clone()
	s.Dimensions[a.Dim] = a.Size
	return s
}

// Replica is the number of the model replica, an int32. It is given, and does not count as varying: what depends on it
// differs between model replicas because each computes another part of something.
type Replica struct{}

// The operations of parts.
const (
	OpPartOf  OpType = "PartOf"
	OpReplica OpType = "Replica"
)

func init() {
	newAttrs[OpPartOf] = func() Attrs { return &PartOf{} }
	newAttrs[OpReplica] = func() Attrs { return &Replica{} }
}

// ReplicaShape is that of [Replica].
var ReplicaShape = shapes.Make(dtypes.Int32)

// OpType implements Attrs.
func (*PartOf) OpType() OpType { return OpPartOf }

// OpType implements Attrs.
func (*Replica) OpType() OpType { return OpReplica }

func (*PartOf) arity() arity  { return arity{}.required(1) }
func (*Replica) arity() arity { return arity{} }

// Emit implements Attrs, by an error: a segment takes it as an input.
func (*PartOf) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("the part of a variable is an input of its segment")
}

// Emit implements Attrs, by an error: a segment takes it as an input.
func (*Replica) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("the number of a model replica is an input of its segment")
}

// IsPart tells whether the value is what a device has of a variable that several share.
func (v *Value) IsPart() bool {
	switch v.Op.Attrs.(type) {
	case *ShardOf, *PartOf:
		return true
	}
	return false
}
