// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hf

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/checkpoint/convert"
)

// Weight says which tensor of a model's files a variable is. Variables are float32.
type Weight struct {
	// Path is that of the variable, and Shape its dimensions.
	Path  string
	Shape []int
	// Names are those that the tensor may have. It is written under the first.
	Names []string
	// Stored are the dimensions of the tensor, if they are others: the same elements in the same order. Nil: those of Shape.
	Stored []int
	// Transpose: the tensor is a matrix with rows and columns exchanged. A Dense layer of GoMLX has its weights as [in, out], a Linear of
	// PyTorch as [out, in], and GPT-2's Conv1D as [in, out] again.
	Transpose bool
	// Optional: a file may be without it. The variable then begins as the model has it.
	Optional bool
}

// stored are the dimensions of the tensor.
func (w Weight) stored() []int {
	dims := w.Shape
	if w.Stored != nil {
		dims = w.Stored
	}
	if w.Transpose {
		return []int{dims[1], dims[0]}
	}
	return dims
}

// Weights are all variables of a model that its files have.
type Weights []Weight

// Options say how [Weights.Load] reads the files of a model.
type Options struct {
	// Lazy makes a tensor that is read when it is used, such as [github.com/easyparallel/epl.Env.Lazy]: a plan then reads headers only. Nil: all is read now.
	Lazy func(shape shapes.Shape, read func() (*tensors.Tensor, error)) (*tensors.Tensor, error)
	// Prefix is one that all names of the files may have, such as "transformer.".
	Prefix string
	// Ignore tells of a tensor, by its name without the prefix, that the model has no use for it. Any other that no weight names is an error.
	Ignore func(name string) bool
}

// tensor is one of a file.
type tensor struct {
	file string
	checkpoint.Tensor
}

// Load makes variables of a store, with the values of the *.safetensors files of a folder: F32, F16 or BF16. All must be there, unless they are optional, and nothing
// else may be.
//
//	weights := hf.Weights{{Path: "/out/weights", Shape: []int{768, 2}, Names: []string{"classifier.weight"}, Transpose: true}}
//	err := weights.Load(store, folder, hf.Options{Lazy: env.Lazy})
func (ws Weights) Load(store *model.Store, folder string, o Options) error {
	all, err := openFolder(folder)
	if err != nil {
		return err
	}
	left := map[string]string{} // names in the files by those without prefix
	for name := range all {
		left[strings.TrimPrefix(name, o.Prefix)] = name
	}
	var missing, unexpected []string
	for _, w := range ws {
		i := slices.IndexFunc(w.Names, func(name string) bool { return left[name] != "" })
		if i < 0 {
			if !w.Optional {
				missing = append(missing, w.Names[0])
			}
			continue
		}
		name := left[w.Names[i]]
		delete(left, w.Names[i])
		if err := w.load(store, all[name], o); err != nil {
			return err
		}
	}
	for short, name := range left {
		if o.Ignore == nil || !o.Ignore(short) {
			unexpected = append(unexpected, name)
		}
	}
	if len(missing)+len(unexpected) > 0 {
		return errors.Errorf("epl: the weights in %s are not those of the model: missing %s; unexpected %s", folder, some(missing), some(unexpected))
	}
	return nil
}

// openFolder finds the tensors of all safetensors files of a folder, by name.
func openFolder(folder string) (map[string]tensor, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.safetensors"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.Errorf("epl: the folder %s has no *.safetensors file; it is to have the files of a model of the Hugging Face Hub", folder)
	}
	all := map[string]tensor{}
	for _, file := range files {
		tensors, done, err := checkpoint.ReadTensors(checkpoint.OS, file)
		if err != nil {
			return nil, err
		}
		done()
		for _, t := range tensors {
			if before, ok := all[t.Name]; ok {
				return nil, errors.Errorf("epl: the tensor %s is in two files, %s and %s; remove one of them", t.Name, before.file, file)
			}
			all[t.Name] = tensor{file, t}
		}
	}
	return all, nil
}

// load makes one variable.
func (w Weight) load(store *model.Store, from tensor, o Options) error {
	if !slices.Equal(from.Shape.Dimensions, w.stored()) {
		return errors.Errorf("epl: the tensor %s of %s is %v, and the model has %v there", from.Name, from.file, from.Shape.Dimensions, w.stored())
	}
	if decoders[from.Shape.DType] == nil {
		return errors.Errorf("epl: the tensor %s of %s has values of type %s; float32, float16 and bfloat16 can be read", from.Name, from.file, from.Shape.DType)
	}
	read := func() (*tensors.Tensor, error) {
		values, err := from.values()
		if err != nil {
			return nil, err
		}
		if w.Transpose {
			values = transposed(values, from.Shape.Dimensions[0])
		}
		return tensors.FromFlatDataAndDimensions(values, w.Shape...), nil
	}
	var value *tensors.Tensor
	var err error
	if o.Lazy != nil {
		value, err = o.Lazy(shapes.Make(dtypes.Float32, w.Shape...), read)
	} else {
		value, err = read()
	}
	if err != nil {
		return err
	}
	_, err = store.CreateVariable(w.Path, value)
	return err
}

// values reads a tensor. Its file is opened for it: between the header and this a plan may be made, or a day pass.
func (t tensor) values() ([]float32, error) {
	all, done, err := checkpoint.ReadTensors(checkpoint.OS, t.file)
	if err != nil {
		return nil, err
	}
	defer done()
	i := slices.IndexFunc(all, func(other checkpoint.Tensor) bool { return other.Name == t.Name && other.Shape.Equal(t.Shape) })
	if i < 0 {
		return nil, errors.Errorf("epl: %s has changed: it has no tensor %s of shape %s any more", t.file, t.Name, t.Shape)
	}
	raw, err := all[i].Read()
	if err != nil {
		return nil, err
	}
	return decoders[t.Shape.DType](raw), nil
}

// decoders make float32 of the types that weights are stored in.
var decoders = map[dtypes.DType]func([]byte) []float32{
	dtypes.Float32: func(b []byte) []float32 {
		return decoded(b, 4, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) })
	},
	dtypes.Float16: func(b []byte) []float32 {
		return decoded(b, 2, func(b []byte) float32 { return float16.FromBits(binary.LittleEndian.Uint16(b)).Float32() })
	},
	dtypes.BFloat16: func(b []byte) []float32 {
		return decoded(b, 2, func(b []byte) float32 { return bfloat16.FromBits(binary.LittleEndian.Uint16(b)).Float32() })
	},
}

func decoded(raw []byte, size int, decode func([]byte) float32) []float32 {
	values := make([]float32, 0, len(raw)/size)
	for part := range slices.Chunk(raw, size) {
		values = append(values, decode(part))
	}
	return values
}

// transposed exchanges rows and columns.
func transposed(values []float32, rows int) []float32 {
	out := make([]float32, len(values))
	columns := len(values) / max(rows, 1)
	for r := range rows {
		for c := range columns {
			out[c*rows+r] = values[r*columns+c]
		}
	}
	return out
}

// Save writes the variables of a store as a safetensors file of float32, under the first name of each. It is there, complete, or it is not. One variable at a
// time is in memory. In a job of several workers the first one calls it: it fetches what others have.
//
//	if env.IsMain() {
//		err = weights.Save(store, filepath.Join(folder, "model.safetensors"))
//	}
func (ws Weights) Save(store *model.Store, file string) error {
	var all []checkpoint.Tensor
	for _, w := range ws {
		v := store.GetVariable(w.Path)
		if v == nil {
			if w.Optional {
				continue
			}
			return errors.Errorf("epl: %s cannot be written: the store has no variable %q; train or load the model first", file, w.Path)
		}
		if want := shapes.Make(dtypes.Float32, w.Shape...); !v.Shape().Equal(want) {
			return errors.Errorf("epl: %s cannot be written: the variable %q is %s, and the list of weights has %s", file, w.Path, v.Shape(), want)
		}
		all = append(all, checkpoint.Tensor{Name: w.Names[0], Shape: shapes.Make(dtypes.Float32, w.stored()...), Read: func() ([]byte, error) {
			value, err := v.Value()
			if err != nil {
				return nil, err
			}
			flat, err := tensors.CopyFlatData[float32](value)
			if err != nil {
				return nil, err
			}
			if w.Transpose {
				flat = transposed(flat, w.stored()[1])
			}
			raw := make([]byte, 0, 4*len(flat))
			for _, x := range flat {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			return raw, nil
		}})
	}
	slices.SortFunc(all, func(a, b checkpoint.Tensor) int { return strings.Compare(a.Name, b.Name) })
	return checkpoint.WriteTensors(checkpoint.OS, file, all, map[string]string{"format": "pt"}) // the format's readers of other libraries ask for it
}

// ForConvert are the names as "epl checkpoint export" and "import" read them, each of them with what prefix returns for it; nil: no prefix. A weight whose tensor has other dimensions than
// its variable cannot be converted that way, and is an error.
func (ws Weights) ForConvert(prefix func(Weight) string) (convert.Names, error) {
	names := convert.Names{}
	for _, w := range ws {
		if w.Stored != nil && !slices.Equal(w.Stored, w.Shape) {
			return nil, errors.Errorf("epl: the tensor %s has other dimensions than the variable %q; write it by Weights.Save", w.Names[0], w.Path)
		}
		name := w.Names[0]
		if prefix != nil {
			name = prefix(w) + name
		}
		names[w.Path] = convert.Name{Name: name, Transpose: w.Transpose}
	}
	return names, nil
}

// some lists the first few of many names.
func some(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	slices.Sort(names)
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
