// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/pkg/errors"
)

// Version is that of the format. A reader refuses newer ones.
const Version = 1

// ManifestName is the file without which a folder is no checkpoint.
const ManifestName = "manifest.json"

const (
	unfinished = "manifest.json.unfinished"
	piecesKey  = "epl.pieces" // in the metadata of a file of pieces
)

// Manifest is what a checkpoint has besides tensors.
type Manifest struct {
	Version int       `json:"version"`
	Step    int64     `json:"step"` // global step
	Time    time.Time `json:"time"`
	EPL     string    `json:"epl"` // versions of the programs that wrote it
	GoMLX   string    `json:"gomlx"`
	Go      string    `json:"go"`
	Workers int       `json:"workers"`
	Devices int       `json:"devices"`
	// Variables and Bytes are how many there are in all files: what is missing is noticed.
	Variables int     `json:"variables"`
	Bytes     int64   `json:"bytes"`
	Params    []Param `json:"params"`
	Files     []File  `json:"files"`
	// Plan is that of the training program, as JSON; null: there was none yet.
	Plan json.RawMessage `json:"plan,omitempty"`
	// Data is the position in the data. Version 0: nothing is known about it.
	Data Data `json:"data"`
	// Metrics are those of the step that choose which checkpoints stay: see [Best].
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// DataVersion is that of [Data].
const DataVersion = 1

// Data is the position in the data.
type Data struct {
	Version  int        `json:"version"`
	Datasets []Position `json:"datasets,omitempty"` // that were trained on
	// Batches are those that a training step took, all together; 0: that was not always as many. MicroBatches are those of a model replica as
	// the configuration had them (pipeline.num_micro_batch).
	Batches      int `json:"batches,omitempty"`
	MicroBatches int `json:"micro_batches,omitempty"`
}

// Position is how far training has come in a dataset. It counts the dataset's own batches, of which a step may take several: so it means the
// same for any number of model replicas and micro-batches.
type Position struct {
	Dataset string  `json:"dataset"` // its name
	Number  int     `json:"number"`  // among datasets of this name, in the order in which the program first gave them to Env.Dataset
	Epochs  []Epoch `json:"epochs"`  // that were trained on, in order; the last is the one to go on with
	Hash    string  `json:"hash"`    // of the last batch that a training step has consumed
}

// Epoch is an iteration of a dataset, or several that are alike.
type Epoch struct {
	Times   int  `json:"times"`
	Batches int  `json:"batches"` // that training steps have consumed
	Ended   bool `json:"ended"`   // the dataset had no more
}

// Param is a hyperparameter of the store, as GoMLX's checkpoints have it.
type Param struct {
	Scope, Key string
	Value      json.RawMessage
	ValueType  string // in Go
}

// File is a file of pieces, as its writer knows it.
type File struct {
	Name      string `json:"name"`
	Worker    int    `json:"worker"`
	Bytes     int64  `json:"bytes"`      // of the file
	Header    string `json:"header"`     // checksum of its header, with the length in front
	DataBytes int64  `json:"data_bytes"` // of the pieces
}

// table is that of CRC-32C, for which processors have an instruction.
var table = crc32.MakeTable(crc32.Castagnoli)

// sum is the checksum of some bytes.
func sum(b []byte) string {
	var crc uint32
	for part := range slices.Chunk(b, 32<<10) {
		fetch(part)
		crc = crc32.Update(crc, table, part)
	}
	return fmt.Sprintf("%08x", crc)
}

// fetch brings bytes to the cache, from four places at once: that takes a quarter off the time of a checksum, which else waits for one cache line after the other.
//
//go:noinline
func fetch(b []byte) (x byte) {
	n := len(b) / 4
	for i := 0; i < n; i += 64 {
		x ^= b[i] ^ b[i+n] ^ b[i+2*n] ^ b[i+3*n]
	}
	return x
}

// sealed is the file of a manifest: its checksum is that of the bytes of the manifest in it.
type sealed struct {
	Manifest json.RawMessage `json:"manifest"`
	Checksum string          `json:"checksum"`
}

// encode writes the manifest with its checksum.
func (m *Manifest) encode() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "{\"manifest\": %s,\n\"checksum\": %q}\n", text, sum(text)), nil
}

// decode reads a manifest that encode wrote.
func decode(b []byte) (*Manifest, error) {
	var s sealed
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, errors.Wrap(err, "the manifest is damaged: it is not JSON")
	}
	if sum(s.Manifest) != s.Checksum {
		return nil, errors.New("the manifest is damaged: its checksum is wrong")
	}
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(s.Manifest, &v); err != nil {
		return nil, err
	}
	if v.Version < 1 || v.Version > Version {
		return nil, errors.Errorf("the checkpoint has version %d of the format, and this EPL reads up to %d; load it with the EPL that wrote it, or a newer one", v.Version, Version)
	}
	m := &Manifest{}
	return m, json.Unmarshal(s.Manifest, m)
}

// readAll reads a file.
func readAll(f FS, name string) ([]byte, error) {
	r, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	n, err := r.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if _, err := r.ReadAt(b, 0); err != nil && !(err == io.EOF && n == 0) {
		return nil, err
	}
	return b, nil
}

// Name is the folder of the n-th checkpoint that was begun.
func Name(n int, step int64) string { return fmt.Sprintf("n%07d-step-%08d", n, step) }

var namePattern = regexp.MustCompile(`^n(\d{7,9})-step-(\d{8,})$`)

// number is that of a folder of a checkpoint; -1: it is something else.
func number(name string) int {
	m := namePattern.FindStringSubmatch(name)
	if m == nil {
		return -1
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// IsName tells whether a folder of this name is a checkpoint, or was to be one.
func IsName(name string) bool { return number(name) >= 0 }

// Listed is a checkpoint in a folder of them.
type Listed struct {
	Name     string
	Manifest *Manifest
}

// List returns the checkpoints that are there, the oldest first, and the number for the next one. broken are those that should be and are not: of each
// why.
func List(f FS, dir string) (all []Listed, next int, broken []error, err error) {
	names, err := folders(f, dir)
	if err != nil {
		return nil, 0, nil, err
	}
	for _, name := range names {
		next = max(next, number(name)+1)
		folder := filepath.Join(dir, name)
		inside, err := f.List(folder)
		if err != nil {
			return nil, 0, nil, errors.Wrapf(err, "epl: the checkpoint %s cannot be read", folder)
		}
		if !slices.Contains(inside, ManifestName) {
			continue // it was never finished, or is being written
		}
		m, err := readManifest(f, folder)
		if err != nil {
			broken = append(broken, err)
			continue
		}
		all = append(all, Listed{name, m})
	}
	return all, next, broken, nil
}

// folders are those in dir that are checkpoints, or were to be, the oldest first.
func folders(f FS, dir string) ([]string, error) {
	names, err := f.List(dir)
	if err != nil {
		return nil, errors.Wrapf(err, "epl: the folder of checkpoints %s cannot be read", dir)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return number(name) < 0 })
	slices.SortStableFunc(names, func(a, b string) int { return number(a) - number(b) })
	return names, nil
}

// readManifest reads that of a folder, and looks whether its files are there.
func readManifest(f FS, folder string) (*Manifest, error) {
	b, err := readAll(f, filepath.Join(folder, ManifestName))
	if err != nil {
		return nil, errors.Wrapf(err, "epl: checkpoint %s", folder)
	}
	m, err := decode(b)
	if err != nil {
		return nil, errors.WithMessagef(err, "epl: checkpoint %s", folder)
	}
	for _, file := range m.Files {
		r, err := f.Open(filepath.Join(folder, file.Name))
		if err != nil {
			return nil, errors.Wrapf(err, "epl: checkpoint %s", folder)
		}
		n, err := r.Size()
		r.Close()
		if err == nil && n != file.Bytes {
			err = errors.Errorf("%s has %d bytes, and was written with %d", file.Name, n, file.Bytes)
		}
		if err != nil {
			return nil, errors.WithMessagef(err, "epl: checkpoint %s", folder)
		}
	}
	return m, nil
}

// NewParam writes a hyperparameter down; ok is false if that cannot be done.
func NewParam(scope, key string, value any) (p Param, ok bool) {
	text, err := json.Marshal(value)
	return Param{scope, key, text, fmt.Sprintf("%T", value)}, err == nil
}

// types are those of hyperparameters that JSON would read as others.
var types = map[string]reflect.Type{}

func init() {
	for _, x := range []any{0, int8(0), int16(0), int32(0), int64(0), uint(0), uint8(0), uint16(0), uint32(0), uint64(0), float32(0), 0.0, "", false, time.Duration(0),
		[]int{}, []int32{}, []int64{}, []float32{}, []float64{}, []string{}, []bool{}} {
		types[reflect.TypeOf(x).String()] = reflect.TypeOf(x)
	}
}

// Typed is the value in the type that it had, if that is a simple one.
func (p Param) Typed() (any, error) {
	var value any
	if t := types[p.ValueType]; t != nil {
		x := reflect.New(t)
		err := json.Unmarshal(p.Value, x.Interface())
		return x.Elem().Interface(), err
	}
	return value, json.Unmarshal(p.Value, &value)
}
