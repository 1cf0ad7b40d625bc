// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package source

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/data"
)

// A file of tokens, a shard, is little endian:
//
//	8 bytes  "EPLTOK\x01\n"
//	4        bytes of a token: 2 or 4, unsigned
//	4        tokens of a block
//	8        number of tokens
//	4        CRC-32C of the 24 bytes before
//	4        zero
//	…        tokens
//	4 each   CRC-32C of each block of tokens
const (
	tokensMagic  = "EPLTOK\x01\n"
	tokensHeader = 32
	tokensBlock  = 1 << 18
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Tokens are windows of texts that were made into numbers: sample i is window i of the files, one after the other. Its input is [length] tokens, int32, and its label, [length, 1], those that
// follow each of them, as models of language learn it. Windows do not overlap, but for the last label of one, which is the first input of the next, and do not cross files.
type Tokens struct {
	length int
	shards []*shard
	first  []int // of each shard: its first window
	all    int
}

// shard is a file of tokens, or tokens in memory.
type shard struct {
	file   string
	data   []byte // of tokens
	width  int
	count  int
	block  int
	sums   []byte
	good   []atomic.Bool // blocks whose checksum was right
	unmap  func() error
	memory []int32
}

// TokensOf are windows of tokens that are in memory.
//
//	tokens, err := source.TokensOf(hf.IDs(tokenizer, text), 128)
func TokensOf(ids []int32, length int) (*Tokens, error) {
	t := &Tokens{length: length}
	if err := t.add(&shard{file: "the tokens", count: len(ids), memory: ids}); err != nil {
		return nil, err
	}
	return t, nil
}

// OpenTokens maps files that [TokenWriter] wrote into memory. Checksums are verified when a part of a file is first read. Close them when nothing reads any more.
//
//	tokens, err := source.OpenTokens(files, 1024)
//	…
//	defer tokens.Close()
func OpenTokens(files []string, length int) (_ *Tokens, err error) {
	t := &Tokens{length: length}
	defer func() {
		if err != nil {
			_ = t.Close()
		}
	}()
	if len(files) == 0 {
		return nil, errors.New("epl: there are no files of tokens; check the folder or the pattern that lists them")
	}
	for _, file := range files {
		s, err := openShard(file)
		if err != nil {
			return nil, errors.WithMessagef(err, "epl: %s", file)
		}
		if err := t.add(s); err != nil {
			_ = s.close()
			return nil, err
		}
	}
	return t, nil
}

func (t *Tokens) add(s *shard) error {
	if t.length < 1 || t.length > math.MaxInt32 {
		return errors.Errorf("epl: windows are of %d tokens; use at least 1", t.length)
	}
	windows := (s.count - 1) / t.length
	if windows < 1 {
		return errors.Errorf("epl: %s: %d tokens are no window of %d and one that follows; use shorter windows, or leave it out", s.file, s.count, t.length)
	}
	t.shards, t.first = append(t.shards, s), append(t.first, t.all)
	t.all += windows
	return nil
}

func openShard(file string) (*shard, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var h [tokensHeader]byte
	if _, err := io.ReadFull(f, h[:]); err != nil {
		return nil, errors.Errorf("byte 0: it has %d bytes, and the header of a file of tokens has %d", info.Size(), tokensHeader)
	}
	if string(h[:8]) != tokensMagic {
		return nil, errors.New("byte 0: it is no file of tokens; source.TokenWriter makes them")
	}
	if binary.LittleEndian.Uint32(h[24:]) != crc32.Checksum(h[:24], castagnoli) {
		return nil, errors.New("byte 0: its header is damaged; make the file again")
	}
	s := &shard{file: file, width: int(binary.LittleEndian.Uint32(h[8:])), block: int(binary.LittleEndian.Uint32(h[12:]))}
	count := binary.LittleEndian.Uint64(h[16:])
	if s.width != 2 && s.width != 4 || s.block < 1 || count > math.MaxInt/8 {
		return nil, errors.Errorf("byte 8: it has %d tokens of %d bytes, in blocks of %d; this version reads those of 2 and 4 bytes", count, s.width, s.block)
	}
	s.count = int(count)
	blocks := (s.count + s.block - 1) / s.block
	if want := int64(tokensHeader) + int64(s.count)*int64(s.width) + 4*int64(blocks); info.Size() != want {
		return nil, errors.Errorf("byte %d: it ends here, and its header says that it has %d bytes; it was cut off, or something was added", info.Size(), want)
	}
	all, unmap, err := mapFile(f, int(info.Size()))
	if err != nil {
		return nil, err
	}
	end := tokensHeader + s.count*s.width
	s.data, s.sums, s.good, s.unmap = all[tokensHeader:end], all[end:], make([]atomic.Bool, blocks), unmap
	return s, nil
}

func (s *shard) close() error {
	if s.unmap == nil {
		return nil
	}
	unmap := s.unmap
	s.unmap, s.data, s.sums = nil, nil, nil
	return unmap()
}

// Close lets go of the files.
func (t *Tokens) Close() (err error) {
	for _, s := range t.shards {
		if e := s.close(); err == nil {
			err = e
		}
	}
	t.shards, t.first, t.all = nil, nil, 0
	return err
}

// Len implements data.Index.
func (t *Tokens) Len() int { return t.all }

// Sample implements data.Index.
func (t *Tokens) Sample(i int, _ *rand.Rand) (data.Sample, error) {
	if i < 0 || i >= t.all {
		return data.Sample{}, errors.Errorf("epl: there is no window %d of %d", i, t.all)
	}
	n := sort.SearchInts(t.first, i+1) - 1
	s := t.shards[n]
	window, err := s.read((i-t.first[n])*t.length, t.length+1)
	if err != nil {
		return data.Sample{}, err
	}
	return data.Sample{
		Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(window[:t.length], t.length)},
		Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(window[1:], t.length, 1)},
	}, nil
}

// read returns some tokens.
func (s *shard) read(from, n int) (ids []int32, err error) {
	if s.memory != nil {
		return slices.Clone(s.memory[from : from+n]), nil
	}
	if s.data == nil {
		return nil, errors.Errorf("epl: %s was closed", s.file)
	}
	// Another program may cut the file off while it is mapped: that is an error, and not the end of the job.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			ids, err = nil, errors.Errorf("epl: %s: byte %d: it cannot be read any more (%v); was it cut off?", s.file, tokensHeader+from*s.width, p)
		}
	}()
	for b := from / s.block; b <= (from+n-1)/s.block; b++ {
		if s.good[b].Load() {
			continue
		}
		at := b * s.block * s.width
		part := s.data[at:min(at+s.block*s.width, len(s.data))]
		if binary.LittleEndian.Uint32(s.sums[4*b:]) != crc32.Checksum(part, castagnoli) {
			return nil, errors.Errorf("epl: %s: bytes %d to %d are damaged: their checksum is another one; make the file again",
				s.file, tokensHeader+at, tokensHeader+at+len(part))
		}
		s.good[b].Store(true)
	}
	ids = make([]int32, n)
	for k := range ids {
		if at := (from + k) * s.width; s.width == 2 {
			ids[k] = int32(binary.LittleEndian.Uint16(s.data[at:]))
		} else {
			ids[k] = int32(binary.LittleEndian.Uint32(s.data[at:]))
		}
	}
	return ids, nil
}

// TokenWriter writes a file of tokens, of any length. The file has its name when it is complete.
type TokenWriter struct {
	file, temporary string
	f               *os.File
	w               *bufio.Writer
	width           int
	count           int
	sum             uint32
	sums            []uint32
	err             error
}

// NewTokenWriter begins a file for tokens below vocabulary: of 2 bytes each, if that is enough.
//
//	w, err := source.NewTokenWriter("train-00000.tokens", tokenizer.Size())
//	…
//	err = w.Write(hf.IDs(tokenizer, text)...)
//	…
//	err = w.Close()
func NewTokenWriter(file string, vocabulary int) (*TokenWriter, error) {
	if vocabulary < 1 || vocabulary > math.MaxInt32 {
		return nil, errors.Errorf("epl: %s: a vocabulary of %d tokens", file, vocabulary)
	}
	w := &TokenWriter{file: file, temporary: file + ".unfinished", width: 4}
	if vocabulary <= 1<<16 {
		w.width = 2
	}
	f, err := os.Create(w.temporary)
	if err != nil {
		return nil, errors.Wrap(err, "epl: a file of tokens")
	}
	w.f, w.w = f, bufio.NewWriterSize(f, 1<<16)
	_, w.err = w.w.Write(make([]byte, tokensHeader))
	return w, nil
}

// Write adds tokens.
func (w *TokenWriter) Write(ids ...int32) error {
	var b [4]byte
	for _, id := range ids {
		if w.err != nil {
			break
		}
		if id < 0 || w.width == 2 && id >= 1<<16 {
			w.err = errors.Errorf("token %d is %d, which is beyond the vocabulary", w.count, id)
			break
		}
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		_, w.err = w.w.Write(b[:w.width])
		w.sum = crc32.Update(w.sum, castagnoli, b[:w.width])
		if w.count++; w.count%tokensBlock == 0 {
			w.sums, w.sum = append(w.sums, w.sum), 0
		}
	}
	return errors.WithMessagef(w.err, "epl: %s cannot be written", w.file)
}

// Close completes the file. After an error there is none.
func (w *TokenWriter) Close() error {
	if w.count%tokensBlock > 0 {
		w.sums = append(w.sums, w.sum)
	}
	h := []byte(tokensMagic)
	for _, n := range []uint32{uint32(w.width), tokensBlock} {
		h = binary.LittleEndian.AppendUint32(h, n)
	}
	h = binary.LittleEndian.AppendUint64(h, uint64(w.count))
	h = binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
	for _, step := range []func() error{
		func() error { return binary.Write(w.w, binary.LittleEndian, w.sums) },
		w.w.Flush,
		func() error { _, err := w.f.WriteAt(h, 0); return err },
		w.f.Sync,
	} {
		if w.err == nil {
			w.err = step()
		}
	}
	if err := w.f.Close(); w.err == nil {
		w.err = err
	}
	if w.err == nil {
		w.err = os.Rename(w.temporary, w.file)
	} else {
		_ = os.Remove(w.temporary)
	}
	return errors.WithMessagef(w.err, "epl: %s cannot be written", w.file)
}
