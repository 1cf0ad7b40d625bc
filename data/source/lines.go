// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package source

import (
	"bufio"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"sort"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/data"
)

// Record is a part of a file: a line, or a record of a TFRecord file.
type Record struct {
	File  string
	At    int64 // where Bytes are in the file
	Bytes []byte
}

// JSON reads the record as JSON. What is wrong is an error that names the file and the byte.
//
//	var text struct{ Text string }
//	err := line.JSON(&text)
func (r Record) JSON(to any) error {
	if err := json.Unmarshal(r.Bytes, to); err != nil {
		at := r.At
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at += syntax.Offset
		}
		return errors.Wrapf(err, "epl: %s: byte %d", r.File, at)
	}
	return nil
}

// records are parts of files that are read when they are asked for. Where they are is kept in memory, in 8 bytes each.
type records struct {
	files  []*os.File
	names  []string
	first  []int     // of each file: its first record
	starts [][]int64 // of each file: where records are, and the end of the last
	parse  func(Record) (data.Sample, error)
	// inside says where in the bytes of a record its data are, without what is around them.
	inside func(file string, at int64, raw []byte) (from, to int, err error)
}

// open goes through all files once, to find where records begin.
func (r *records) open(files []string, scan func(f *os.File, size int64) ([]int64, error)) (err error) {
	if len(files) == 0 {
		return errors.New("epl: there are no files to read samples from; check the folder or the pattern that lists them")
	}
	if r.parse == nil {
		return errors.New("epl: there is no function that makes samples of records")
	}
	defer func() {
		if err != nil {
			_ = r.Close()
		}
	}()
	all := 0
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return errors.Wrap(err, "epl: samples")
		}
		r.files = append(r.files, f)
		info, err := f.Stat()
		if err != nil {
			return errors.Wrap(err, "epl: samples")
		}
		starts, err := scan(f, info.Size())
		if err != nil {
			return errors.WithMessagef(err, "epl: %s", name)
		}
		if len(starts) < 2 {
			return errors.Errorf("epl: %s: there is no sample in it; take it off the list of files", name)
		}
		r.names, r.first, r.starts = append(r.names, name), append(r.first, all), append(r.starts, starts)
		all += len(starts) - 1
	}
	r.first = append(r.first, all)
	return nil
}

// Close lets go of the files.
func (r *records) Close() (err error) {
	for _, f := range r.files {
		if e := f.Close(); err == nil {
			err = e
		}
	}
	r.files = nil
	return err
}

// Len implements data.Index.
func (r *records) Len() int { return r.first[len(r.first)-1] }

// Record reads record i.
func (r *records) Record(i int) (Record, error) {
	if i < 0 || i >= r.Len() {
		return Record{}, errors.Errorf("epl: there is no sample %d of %d", i, r.Len())
	}
	n := sort.SearchInts(r.first, i+1) - 1
	if r.files == nil {
		return Record{}, errors.Errorf("epl: %s was closed", r.names[n])
	}
	from, to := r.starts[n][i-r.first[n]], r.starts[n][i-r.first[n]+1]
	raw := make([]byte, to-from)
	if got, err := r.files[n].ReadAt(raw, from); got < len(raw) {
		if errors.Is(err, io.EOF) {
			err = errors.New("it ends here, and was longer when it was opened")
		}
		return Record{}, errors.WithMessagef(err, "epl: %s: byte %d", r.names[n], from+int64(got))
	}
	begin, end, err := r.inside(r.names[n], from, raw)
	if err != nil {
		return Record{}, err
	}
	return Record{r.names[n], from + int64(begin), raw[begin:end]}, nil
}

// Sample implements data.Index.
func (r *records) Sample(i int, _ *rand.Rand) (data.Sample, error) {
	record, err := r.Record(i)
	if err != nil {
		return data.Sample{}, err
	}
	s, err := r.parse(record)
	return s, errors.WithMessagef(err, "epl: %s: byte %d", record.File, record.At)
}

// Lines are the lines of text files: plain text, or JSONL. Lines that are empty, or white space, are no samples.
type Lines struct{ records }

// OpenLines goes through files once, to find their lines. parse makes a sample of one; it may be called at the same time.
//
//	lines, err := source.OpenLines(files, func(line source.Record) (data.Sample, error) {
//		var text struct{ Text string }
//		if err := line.JSON(&text); err != nil {
//			return data.Sample{}, err
//		}
//		return sampleOf(text.Text)
//	})
func OpenLines(files []string, parse func(line Record) (data.Sample, error)) (*Lines, error) {
	l := &Lines{records{parse: parse, inside: func(_ string, _ int64, raw []byte) (from, to int, err error) {
		from, to = trimmed(raw)
		return from, to, nil
	}}}
	if err := l.open(files, scanLines); err != nil {
		return nil, err
	}
	return l, nil
}

// scanLines finds where lines begin. White space in front of a line belongs to the one before it.
func scanLines(f *os.File, size int64) (starts []int64, err error) {
	b := bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 1<<18)
	at, inLine := int64(0), false
	for {
		part, err := b.ReadSlice('\n')
		if from, to := trimmed(part); !inLine && from < to {
			starts, inLine = append(starts, at), true
		}
		at += int64(len(part))
		switch {
		case err == nil:
			inLine = false
		case errors.Is(err, io.EOF):
			return append(starts, at), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, errors.Wrapf(err, "byte %d", at)
		}
	}
}

// trimmed is where a line is without white space around it.
func trimmed(b []byte) (from, to int) {
	space := func(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
	to = len(b)
	for from < to && space(b[to-1]) {
		to--
	}
	for from < to && space(b[from]) {
		from++
	}
	return from, to
}
