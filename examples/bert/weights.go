package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/checkpoint/convert"
)

// weight says where a variable of the network is in the files of the Hugging Face Hub.
type weight struct {
	names     []string // it has one of these
	path      string   // of the variable
	shape     []int    // of the variable
	transpose bool     // there the tensor is the other way round
	optional  bool     // it is only in models that already answer questions
}

// weights lists the variables of the network.
func (b bert) weights() (all []weight) {
	table := func(name, path string, rows int) {
		all = append(all, weight{names: []string{name + ".weight"}, path: path + "/embeddings", shape: []int{rows, b.hidden}})
	}
	linear := func(name, path string, in, out int) {
		all = append(all,
			weight{names: []string{name + ".weight"}, path: path + "/weights", shape: []int{in, out}, transpose: true},
			weight{names: []string{name + ".bias"}, path: path + "/biases", shape: []int{out}})
	}
	normalisation := func(name, path string) {
		all = append(all,
			weight{names: []string{name + ".weight", name + ".gamma"}, path: path + "/layer_normalization/gain", shape: []int{b.hidden}},
			weight{names: []string{name + ".bias", name + ".beta"}, path: path + "/layer_normalization/offset", shape: []int{b.hidden}})
	}
	table("embeddings.word_embeddings", "/"+inEmbeddings+"/word", b.vocabulary)
	table("embeddings.position_embeddings", "/"+inEmbeddings+"/position", b.positions)
	table("embeddings.token_type_embeddings", "/"+inEmbeddings+"/segment", 2)
	normalisation("embeddings.LayerNorm", "/"+inEmbeddings)
	for i := range b.layers {
		from, to := fmt.Sprintf("encoder.layer.%d.", i), fmt.Sprintf("/"+inLayer, i)
		for _, name := range []string{"query", "key", "value"} {
			linear(from+"attention.self."+name, to+"/attention/"+name, b.hidden, b.hidden)
		}
		linear(from+"attention.output.dense", to+"/attention/output", b.hidden, b.hidden)
		normalisation(from+"attention.output.LayerNorm", to+"/attention")
		linear(from+"intermediate.dense", to+"/intermediate", b.hidden, 4*b.hidden)
		linear(from+"output.dense", to+"/output", 4*b.hidden, b.hidden)
		normalisation(from+"output.LayerNorm", to)
	}
	head := len(all)
	linear("qa_outputs", "/"+inHead, b.hidden, 2)
	for i := head; i < len(all); i++ {
		all[i].optional = true
	}
	return all
}

// writeNames writes the names that the weights have on the Hub, as a BertForQuestionAnswering of PyTorch has them.
func (b bert) writeNames(file string) error {
	names := convert.Names{} // + epl
	for _, w := range b.weights() {
		name := w.names[0]
		if !w.optional {
			name = "bert." + name
		}
		names[w.path] = convert.Name{Name: name, Transpose: w.transpose}
	}
	text, err := json.MarshalIndent(names, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("bert: the names cannot be written: %w", err)
	}
	return nil
}

// notUsed are parts of stored models that have no place in the network: heads for other tasks, and a table of numbers.
func notUsed(name string) bool {
	return strings.HasPrefix(name, "cls.") || strings.HasPrefix(name, "pooler.") || name == "embeddings.position_ids"
}

// load gives the variables of the network the values of a folder, which are read when they are used. All must be there, but
// for the head, which is for the training to find, and nothing else may be.
func (b bert) load(env *epl.Env, store *model.Store, folder string) error {
	stored, err := openFolder(folder)
	if err != nil {
		return err
	}
	left := map[string]string{} // names in the files by those without prefix
	for name := range stored {
		left[strings.TrimPrefix(name, "bert.")] = name
	}
	var missing, unexpected []string
	for _, w := range b.weights() {
		i := slices.IndexFunc(w.names, func(name string) bool { return left[name] != "" })
		if i < 0 {
			if !w.optional {
				missing = append(missing, w.names[0])
			}
			continue
		}
		name := left[w.names[i]]
		delete(left, w.names[i])
		if err := w.load(env, store, name, stored[name]); err != nil {
			return err
		}
	}
	for short, name := range left {
		if !notUsed(short) {
			unexpected = append(unexpected, name)
		}
	}
	if len(missing)+len(unexpected) > 0 {
		return fmt.Errorf("bert: the weights in %s are not those of a BERT of %d layers: missing %s; unexpected %s; see -size and -layers",
			folder, b.layers, some(missing), some(unexpected))
	}
	return nil
}

// load gives one variable its value.
func (w weight) load(env *epl.Env, store *model.Store, name string, from storedTensor) error {
	want := slices.Clone(w.shape)
	if w.transpose {
		slices.Reverse(want)
	}
	if !slices.Equal(from.shape, want) {
		return fmt.Errorf("bert: the tensor %s of %s is %v, and the network has %v there; see -size, -layers, -hidden and -heads, "+
			"and whether vocab.txt is that of the model", name, from.file, from.shape, want)
	}
	if err := from.check(name); err != nil {
		return err
	}
	value, err := env.Lazy(shapes.Make(dtypes.Float32, w.shape...), func() (*tensors.Tensor, error) { // + epl
		values, err := from.read(name)
		if err != nil {
			return nil, err
		}
		if w.transpose {
			values = transposed(values, want[0], want[1])
		}
		return tensors.FromFlatDataAndDimensions(values, w.shape...), nil
	})
	if err != nil {
		return err
	}
	_, err = store.CreateVariable(w.path, value)
	return err
}

// transposed exchanges rows and columns.
func transposed(values []float32, rows, columns int) []float32 {
	out := make([]float32, len(values))
	for r := range rows {
		for c := range columns {
			out[c*rows+r] = values[r*columns+c]
		}
	}
	return out
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
