package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
)

// storedTensor is a tensor in a safetensors file: eight bytes with the length of a JSON header, the header, and the
// values of all tensors, one after the other. go-huggingface reads these files as well, but only after it has asked a
// server about the model; a folder is all that is needed here.
type storedTensor struct {
	file  string
	dtype string
	shape []int
	from  int64 // in the file
	bytes int64
}

// openFolder finds the tensors of all safetensors files of a folder, by name.
func openFolder(folder string) (map[string]storedTensor, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.safetensors"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("bert: the folder %s has no *.safetensors file; -model_dir is a folder with the files of a "+
			"model of the Hugging Face Hub, such as bert-base-uncased", folder)
	}
	all := map[string]storedTensor{}
	for _, file := range files {
		tensors, err := readHeader(file)
		if err != nil {
			return nil, err
		}
		for name, t := range tensors {
			if before, ok := all[name]; ok {
				return nil, fmt.Errorf("bert: the tensor %s is in two files, %s and %s; remove one of them", name, before.file, file)
			}
			all[name] = t
		}
	}
	return all, nil
}

// readHeader reads which tensors a file has, and checks that they are within it.
func readHeader(file string) (map[string]storedTensor, error) {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("bert: %s is not a safetensors file, or incomplete: %w", file, fmt.Errorf(format, args...))
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("bert: weights cannot be read: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("bert: weights cannot be read: %w", err)
	}
	var length uint64
	if err := binary.Read(f, binary.LittleEndian, &length); err != nil {
		return nil, wrong("%w", err)
	}
	if length > uint64(info.Size()-8) {
		return nil, wrong("its header would have %d bytes, and the file has %d", length, info.Size())
	}
	header := make([]byte, length)
	if _, err := io.ReadFull(f, header); err != nil {
		return nil, wrong("%w", err)
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(header, &entries); err != nil {
		return nil, wrong("%w", err)
	}
	delete(entries, "__metadata__")
	start, tensors := int64(8+length), map[string]storedTensor{}
	for name, entry := range entries {
		var e struct {
			DType   string   `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(entry, &e); err != nil {
			return nil, wrong("tensor %s: %w", name, err)
		}
		if e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0] || start+e.Offsets[1] > info.Size() {
			return nil, wrong("tensor %s is from byte %d to %d of %d", name, e.Offsets[0], e.Offsets[1], info.Size()-start)
		}
		tensors[name] = storedTensor{file, e.DType, e.Shape, start + e.Offsets[0], e.Offsets[1] - e.Offsets[0]}
	}
	return tensors, nil
}

// check returns why the values of a tensor cannot be read.
func (t storedTensor) check(name string) error {
	size := decoders[t.dtype].size
	if size == 0 {
		return fmt.Errorf("bert: the tensor %s of %s has values of type %s; F32, F16 and BF16 can be read", name, t.file, t.dtype)
	}
	for _, d := range t.shape {
		size *= d
	}
	if t.bytes != int64(size) {
		return fmt.Errorf("bert: the tensor %s of %s has %d bytes, and as %s%v should have %d", name, t.file, t.bytes, t.dtype, t.shape, size)
	}
	return nil
}

// read returns the values of a tensor, which was checked.
func (t storedTensor) read(name string) ([]float32, error) {
	f, err := os.Open(t.file)
	if err != nil {
		return nil, fmt.Errorf("bert: weights cannot be read: %w", err)
	}
	defer f.Close()
	raw := make([]byte, t.bytes)
	if _, err := f.ReadAt(raw, t.from); err != nil {
		return nil, fmt.Errorf("bert: the tensor %s of %s cannot be read: %w", name, t.file, err)
	}
	d := decoders[t.dtype]
	values := make([]float32, 0, len(raw)/d.size)
	for part := range slices.Chunk(raw, d.size) {
		values = append(values, d.decode(part))
	}
	return values, nil
}

// decoders make values of the types that weights are stored in.
var decoders = map[string]struct {
	size   int
	decode func([]byte) float32
}{
	"F32":  {4, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }},
	"F16":  {2, func(b []byte) float32 { return float16.FromBits(binary.LittleEndian.Uint16(b)).Float32() }},
	"BF16": {2, func(b []byte) float32 { return bfloat16.FromBits(binary.LittleEndian.Uint16(b)).Float32() }},
}
