// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"os"

	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
)

// Names are those of tensors in another format, by the paths of variables: what is not named is left out. Nil: all keep their paths.
type Names map[string]Name

// Name is that of a tensor in another format. As JSON it is a string, or an object if it has more to say.
type Name struct {
	Name string `json:"name"`
	// Transpose: there it is a matrix with rows and columns exchanged. A Dense layer of GoMLX has its weights as [in, out], a Linear of PyTorch as [out, in].
	Transpose bool `json:"transpose,omitempty"`
}

// object is a Name without methods.
type object Name

// UnmarshalJSON implements json.Unmarshaler.
func (n *Name) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &n.Name)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode((*object)(n))
}

// MarshalJSON implements json.Marshaler.
func (n Name) MarshalJSON() ([]byte, error) {
	if n.Transpose {
		return json.Marshal(object(n))
	}
	return json.Marshal(n.Name)
}

// ReadNames reads a JSON object of names by path.
func ReadNames(file string) (n Names, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, errors.Wrap(err, "epl: names")
	}
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, errors.Wrapf(err, "epl: %s is to be a JSON object with a name for each path of a variable, such as {\"/dense/biases\": \"model.dense.bias\", "+
			"\"/dense/weights\": {\"name\": \"model.dense.weight\", \"transpose\": true}}", file)
	}
	if len(n) == 0 {
		return nil, errors.Errorf("epl: %s has no names: nothing would be converted", file)
	}
	seen := map[string]string{}
	for path, name := range n {
		if name.Name == "" {
			return nil, errors.Errorf("epl: %s: %q has no name", file, path)
		}
		if other, twice := seen[name.Name]; twice {
			return nil, errors.Errorf("epl: %s: %q is the name of %q and %q", file, name.Name, min(other, path), max(other, path))
		}
		seen[name.Name] = path
	}
	return n, nil
}

// turned is a tensor of one format as it is in the other.
func (n Name) turned(t checkpoint.Tensor) (checkpoint.Tensor, error) {
	if !n.Transpose {
		return t, nil
	}
	if t.Shape.Rank() != 2 || t.Shape.DType.IsPacked() {
		return t, errors.Errorf("epl: %q is %s: only a matrix can be transposed", t.Name, t.Shape)
	}
	rows, columns := t.Shape.Dimensions[0], t.Shape.Dimensions[1]
	read, size := t.Read, int(t.Shape.DType.Size())
	t.Shape = shapes.Make(t.Shape.DType, columns, rows)
	t.Read = func() ([]byte, error) {
		b, err := read()
		if err != nil {
			return nil, err
		}
		return transposed(b, rows, columns, size), nil
	}
	return t, nil
}

// transposed exchanges rows and columns of a matrix of elements of so many bytes.
func transposed(b []byte, rows, columns, size int) []byte {
	const tile = 32 // rows and columns of a part that stays in the processor's cache
	to := make([]byte, len(b))
	for top := 0; top < rows; top += tile {
		for left := 0; left < columns; left += tile {
			for r := top; r < min(top+tile, rows); r++ {
				for c := left; c < min(left+tile, columns); c++ {
					at, from := (c*rows+r)*size, (r*columns+c)*size
					copy(to[at:at+size], b[from:from+size])
				}
			}
		}
	}
	return to
}
