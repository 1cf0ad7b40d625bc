// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/state"
)

// world is a small model on three workers, one of which has less than a part.
type world struct {
	variables []state.Variable
	whole     map[string][]byte
	metrics   map[string]float64
}

// newWorld draws values by a seed: those of a step.
func newWorld(seed int64) *world { return newWorldOf(seed, 4) }

// newWorldOf has a variable of so many rows of 1000 numbers.
func newWorldOf(seed int64, rows int) *world {
	w := &world{whole: map[string][]byte{}}
	add := func(path string, s shapes.Shape, held ...state.Held) {
		w.variables = append(w.variables, state.Variable{Path: path, Shape: s, Held: held})
		b := make([]byte, state.Bytes(s.DType, s.Size()))
		rand.New(rand.NewSource(seed + int64(len(w.variables)))).Read(b)
		w.whole[path] = b
	}
	all := func(s shapes.Shape) state.Held {
		return state.Held{Region: state.Whole(s.Dimensions), Ranks: []int{0, 1, 2}}
	}
	step := shapes.Make(dtypes.Int64)
	add("/global_step", step, all(step))
	big := shapes.Make(dtypes.Float32, rows, 1000)
	add("/replicated", big, all(big))
	split := shapes.Make(dtypes.Float16, 5, 7)
	add("/split", split, state.Held{Region: state.Box([]int{0, 0}, []int{5, 3}), Ranks: []int{0}},
		state.Held{Region: state.Box([]int{0, 3}, []int{5, 5}), Ranks: []int{1}}, state.Held{Region: state.Box([]int{0, 5}, []int{5, 7}), Ranks: []int{2}})
	zero := shapes.Make(dtypes.Bool, 4)
	part := func(from, to int, rank int) state.Held {
		return state.Held{Region: state.Region{Start: []int{0}, Limit: []int{4}, From: from, To: to}, Ranks: []int{rank}}
	}
	add("/zero", zero, part(0, 2, 0), part(2, 4, 1), part(4, 4, 2))
	packed := shapes.Make(dtypes.Int4, 3)
	add("/packed", packed, all(packed))
	complex := shapes.Make(dtypes.Complex128, 2)
	add("/complex", complex, all(complex))
	return w
}

// save writes the world as the n-th checkpoint, as workers do.
func (w *world) save(f FS, dir string, n int, step int64) error {
	folder := filepath.Join(dir, Name(n, step))
	m := &Manifest{Step: step, Variables: len(w.variables), Workers: 3, Metrics: w.metrics}
	pieces := state.Deal(w.variables, func(rank int) int { return rank })
	for worker := range 3 {
		var mine []Chunk
		for _, p := range pieces {
			if p.Owner == worker {
				b := make([]byte, p.Bytes())
				if err := state.Cut(p.DType, p.Shape, b, p.Region, w.whole[p.Path], state.Whole(p.Shape)); err != nil {
					return err
				}
				mine = append(mine, Chunk{Piece: p, Bytes: b})
				m.Bytes += int64(len(b))
			}
		}
		file, err := Write(f, folder, worker, mine)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, file)
	}
	return Commit(f, folder, m)
}

// load reads all of a checkpoint, in regions of its own, and compares.
func (w *world) check(f FS, folder string) error {
	c, err := Open(f, folder)
	if err != nil {
		return err
	}
	defer c.Close()
	for path, want := range w.whole {
		s, ok := c.Shape(path)
		if !ok {
			return fmt.Errorf("there is no %s", path)
		}
		got := make([]byte, len(want))
		if err := c.Read(path, state.Whole(s.Dimensions), got); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return errWrong
		}
	}
	return nil
}

var errWrong = errors.New("SILENTLY WRONG")

func TestWhatIsWrittenIsRead(t *testing.T) {
	dir := t.TempDir()
	w := newWorldOf(1, 700) // larger than two blocks
	if err := w.save(OS, dir, 0, 12); err != nil {
		t.Fatal(err)
	}
	all, next, damaged, err := List(OS, dir)
	if err != nil || len(all) != 1 || next != 1 || damaged != nil || all[0].Manifest.Step != 12 {
		t.Fatal(all, next, damaged, err)
	}
	folder := filepath.Join(dir, all[0].Name)
	if err := w.check(OS, folder); err != nil {
		t.Fatal(err)
	}
	c, err := Open(OS, folder)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Regions of other plans: columns, which are far apart, and elements.
	for _, r := range []state.Region{state.Box([]int{0, 3}, []int{700, 9}), state.Box([]int{650, 0}, []int{700, 1000}),
		{Start: []int{0, 0}, Limit: []int{700, 1000}, From: 262140, To: 530000}, {Start: []int{0, 10}, Limit: []int{700, 20}, From: 5, To: 6995}} {
		got, want := make([]byte, 4*r.Size()), make([]byte, 4*r.Size())
		if err := c.Read("/replicated", r, got); err != nil {
			t.Fatal(err)
		}
		if err := state.Cut(dtypes.Float32, []int{700, 1000}, want, r, w.whole["/replicated"], state.Whole([]int{700, 1000})); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v: %v", r, err)
		}
	}
	for share := range 3 {
		if err := c.Verify(share, 3); err != nil {
			t.Error(err)
		}
	}
}

func TestReadingAPartReadsOnlyItsBlocks(t *testing.T) {
	f := &Counted{FS: newMemory()}
	w := newWorldOf(1, 700)
	if err := w.save(f, "d", 0, 1); err != nil {
		t.Fatal(err)
	}
	c, err := Open(f, "d/"+Name(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	opened := f.Read.Load()
	read := func() (n int64) {
		n, opened = f.Read.Load()-opened, f.Read.Load()
		return n
	}
	err = c.Read("/replicated", state.Box([]int{0, 0}, []int{1, 1000}), make([]byte, 4000))
	if n := read(); err != nil || n == 0 || n > Block {
		t.Errorf("%v, %d bytes were read for 4000", err, n)
	}
	err = c.Verify(1, 3)
	if n := read(); err != nil || n != 1400000 {
		t.Errorf("%v: one of two pieces of 1.4 MB, which three share, were %d bytes", err, n)
	}
}

// A call that fails, whichever it is, leaves the checkpoint before it, and the next save works.
func TestAFailedSaveLeavesTheOldCheckpoint(t *testing.T) {
	for name, fault := range map[string]struct {
		err  error
		torn bool
		// goesOn: only this call fails; else all after it, too, as when a disk is full, or gone.
		goesOn bool
	}{"no space": {noSpace, true, false}, "error": {broken, false, true}, "gone": {broken, true, false}} {
		old, young, last := newWorld(1), newWorld(100), newWorld(200)
		for at := 0; ; at++ {
			f := newMemory()
			if err := old.save(f, "d", 0, 1); err != nil {
				t.Fatal(err)
			}
			f.calls, f.torn = 0, fault.torn
			f.fault = func(call int, _, _ string) error {
				if call == at || call > at && !fault.goesOn {
					return fault.err
				}
				return nil
			}
			err := young.save(f, "d", 1, 2)
			if err == nil {
				if at < 15 {
					t.Fatalf("%s: a save has %d calls", name, at)
				}
				break
			}
			f.fault = nil
			if !strings.Contains(err.Error(), fault.err.(interface{ Unwrap() error }).Unwrap().Error()) {
				t.Errorf("%s at call %d: %v", name, at, err)
			}
			// The manifest may be there if only the last sync failed: it is complete then.
			states := f.crashes()
			states["now"] = f
			for state, f := range states {
				if err := listedLoad(f, "d", old, young); err != nil {
					t.Errorf("%s at call %d, %s: %v", name, at, state, err)
				}
			}
			if err := last.save(f, "d", 2, 3); err != nil {
				t.Errorf("%s at call %d: the next save: %v", name, at, err)
			}
			if _, err := Prune(f, "d", 1); err != nil {
				t.Error(err)
			}
			if names, _ := f.List("d"); !slices.Equal(names, []string{Name(2, 3)}) {
				t.Errorf("%s at call %d: %v are left", name, at, names)
			}
		}
	}
}

// listedLoad returns why a checkpoint that is listed does not load. The first one has to be there.
func listedLoad(f FS, dir string, all ...*world) error {
	listed, _, damaged, err := List(f, dir)
	if err != nil || len(damaged) > 0 {
		return fmt.Errorf("%v %v", err, damaged)
	}
	if len(listed) == 0 || number(listed[0].Name) != 0 {
		return errors.New("the old one is gone")
	}
	for _, l := range listed {
		if err := all[number(l.Name)].check(f, filepath.Join(dir, l.Name)); err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	return nil
}

// A crash at any call leaves a folder of which all checkpoints load, while saving and while removing old ones.
func TestACrashAtAnyCallLeavesCheckpointsThatLoad(t *testing.T) {
	worlds := []*world{newWorld(1), newWorld(100)}
	crashed := errors.New("crashed")
	for at, done := 0, false; !done; at++ {
		f := newMemory()
		if err := worlds[0].save(f, "d", 0, 1); err != nil {
			t.Fatal(err)
		}
		f.calls = 0
		f.fault = func(call int, _, _ string) error {
			if call >= at {
				return crashed
			}
			return nil
		}
		err := worlds[1].save(f, "d", 1, 2)
		saved := err == nil
		if saved {
			_, err = Prune(f, "d", 1)
		}
		done = err == nil
		for state, f := range f.crashes() {
			listed, next, damaged, err := List(f, "d")
			if err != nil || len(damaged) > 0 || len(listed) == 0 || next < 1 {
				t.Fatalf("call %d, %s: %v %v %v", at, state, listed, damaged, err)
			}
			if newest := listed[len(listed)-1].Name; saved && newest != Name(1, 2) {
				t.Errorf("call %d, %s: the new checkpoint was there, and is not", at, state)
			}
			for _, l := range listed {
				if err := worlds[number(l.Name)].check(f, filepath.Join("d", l.Name)); err != nil {
					t.Errorf("call %d, %s: %s: %v", at, state, l.Name, err)
				}
			}
		}
	}
}

// A disk that says that it has written what it has not cannot be helped, but is found out.
func TestWhatALyingDiskLostIsNoticed(t *testing.T) {
	old, young := newWorld(1), newWorld(100)
	for i := 0; ; i++ {
		at, once := i/2, i%2 == 1
		f := newMemory()
		if err := old.save(f, "d", 0, 1); err != nil {
			t.Fatal(err)
		}
		f.calls = 0
		f.fault = func(call int, _, _ string) error { // from this call on it lies, or only there
			f.lying = call == at || call > at && !once
			return nil
		}
		if err := young.save(f, "d", 1, 2); err != nil {
			t.Fatal(err)
		}
		truly := f.calls <= at
		for state, f := range f.crashes() {
			if err := old.check(f, filepath.Join("d", Name(0, 1))); err != nil {
				t.Errorf("call %d, %s: the old one: %v", at, state, err)
			}
			err := young.check(f, filepath.Join("d", Name(1, 2)))
			if errors.Is(err, errWrong) || truly && err != nil {
				t.Errorf("call %d, %s: %v", at, state, err)
			}
		}
		if truly {
			break
		}
	}
}

// A rename that the file system did, and lost, in spite of the sync of its folder: the checkpoint is not there.
func TestALostRenameLeavesTheOldCheckpoint(t *testing.T) {
	f := newMemory()
	old, young := newWorld(1), newWorld(100)
	if err := old.save(f, "d", 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := young.save(f, "d", 1, 2); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("d", Name(1, 2), ManifestName)
	for _, before := range []string{filepath.Join("d", Name(1, 2), unfinished), ""} { // under its old name, or under none
		g := f.crashes()["after a crash"]
		if before != "" {
			g.files[before] = g.files[name]
		}
		delete(g.files, name)
		if listed, _, _, err := List(g, "d"); err != nil || len(listed) != 1 {
			t.Errorf("%v are listed: %v", listed, err)
		}
		if err := listedLoad(g, "d", old, young); err != nil {
			t.Error(err)
		}
		if err := young.save(g, "d", 2, 2); err != nil {
			t.Error(err)
		}
		if _, err := Prune(g, "d", 1); err != nil {
			t.Error(err)
		}
		if names, _ := g.List("d"); !slices.Equal(names, []string{Name(2, 2)}) {
			t.Errorf("%v are left", names)
		}
	}
}

// A disk that cannot be read, at whichever call: that is an error, or what is there is right. Nothing that could be loaded is removed but what is old.
func TestAnErrorOfAnyReadIsNoticed(t *testing.T) {
	worlds := []*world{newWorld(1), newWorld(100), newWorld(200)}
	for i, done := 0, false; !done; i++ {
		at, once := i/2, i%2 == 1
		f := newMemory()
		for n, w := range worlds {
			if err := w.save(f, "d", n, int64(n)); err != nil {
				t.Fatal(err)
			}
		}
		failed := false
		f.reads, f.readFault = 0, func(call int, _, _ string) error {
			if call == at || call > at && !once {
				failed = true
				return broken
			}
			return nil
		}
		listed, _, damaged, err := List(f, "d")
		if err == nil && len(listed)+len(damaged) != len(worlds) {
			t.Errorf("call %d: %d and %d are listed", at, len(listed), len(damaged))
		}
		for _, l := range listed {
			folder := filepath.Join("d", l.Name)
			if err := worlds[number(l.Name)].check(f, folder); errors.Is(err, errWrong) || err != nil && !strings.Contains(err.Error(), "input/output error") {
				t.Errorf("call %d: %s: %v", at, l.Name, err)
			}
		}
		_, _ = Prune(f, "d", 2)
		done = !failed
		f.readFault = nil
		all, _, damaged, err := List(f, "d")
		if err != nil || len(damaged) > 0 || len(all) < 2 || all[len(all)-1].Name != Name(2, 2) {
			t.Errorf("call %d: %v are left: %v, %v", at, all, damaged, err)
		}
		for _, l := range all {
			if err := worlds[number(l.Name)].check(f, filepath.Join("d", l.Name)); err != nil {
				t.Errorf("call %d: %s: %v", at, l.Name, err)
			}
		}
	}
}

// Whatever byte is changed, anywhere: it is an error, not a wrong value.
func TestChangedBytesAreNoticed(t *testing.T) {
	w := newWorld(1)
	f := newMemory()
	if err := w.save(f, "d", 0, 1); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join("d", Name(0, 1))
	r := rand.New(rand.NewSource(1))
	for name, file := range f.files {
		for range 60 {
			i := r.Intn(len(file.data))
			if r.Intn(2) == 0 {
				i = r.Intn(min(len(file.data), 2000)) // headers are short
			}
			old := file.data[i]
			file.data[i] ^= 1 << r.Intn(8)
			if err := w.check(f, folder); err == nil || errors.Is(err, errWrong) {
				if !(err == nil && filepath.Base(name) == ManifestName && isSpace(old) && isSpace(file.data[i])) {
					t.Errorf("byte %d of %s: %v", i, name, err)
				}
			}
			file.data[i] = old
		}
		for _, n := range []int{0, 7, len(file.data) / 2, len(file.data) - 2} { // torn
			whole := file.data
			file.data = file.data[:n]
			if err := w.check(f, folder); err == nil || errors.Is(err, errWrong) {
				t.Errorf("%s cut to %d bytes: %v", name, n, err)
			}
			file.data = whole
		}
	}
}

func isSpace(b byte) bool { return strings.ContainsRune(" \n\t\r", rune(b)) }

func TestANewerFormatIsRefused(t *testing.T) {
	m := &Manifest{Version: Version + 1}
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(b); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
}

func TestPruneKeepsTheNewestAndWhatIsNotItsOwn(t *testing.T) {
	f := newMemory()
	w := newWorld(1)
	for n := range 4 {
		if err := w.save(f, "d", n, int64(10*n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"d/n0000009-step-x/a", "d/notes", "d/" + Name(7, 1) + "/worker-00000.safetensors"} {
		f.files[name] = &inode{}
	}
	removed, err := Prune(f, "d", 2)
	if err != nil || !slices.Equal(removed, []string{Name(0, 0), Name(1, 10)}) {
		t.Error(removed, err)
	}
	left, _ := f.List("d")
	if want := []string{Name(2, 20), Name(3, 30), Name(7, 1), "n0000009-step-x", "notes"}; !slices.Equal(left, want) {
		t.Errorf("%v are left, not %v", left, want)
	}
}

func TestTheBestStayWithTheNewest(t *testing.T) {
	values := []float64{0.5, 0.1, 0.9, 0.1, math.NaN(), 0.7, 0.3}
	for _, c := range []struct {
		best []Best
		want []int
	}{
		{nil, []int{6}},
		{[]Best{{Metric: "loss", N: 1}}, []int{1, 6}},
		{[]Best{{Metric: "loss", N: 2}}, []int{1, 3, 6}},
		{[]Best{{Metric: "loss", N: 1}, {Metric: "loss", N: 2, Highest: true}}, []int{1, 2, 5, 6}},
		{[]Best{{Metric: "accuracy", N: 9}}, []int{6}},
		{[]Best{{Metric: "loss", N: 9}}, []int{0, 1, 2, 3, 5, 6}},
	} {
		f := newMemory()
		w := newWorld(1)
		for n, x := range values {
			w.metrics = map[string]float64{"loss": x}
			if math.IsNaN(x) {
				w.metrics = nil
			}
			if err := w.save(f, "d", n, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Prune(f, "d", 1, c.best...); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, n := range c.want {
			want = append(want, Name(n, 0))
		}
		if left, _ := f.List("d"); !slices.Equal(left, want) {
			t.Errorf("%v: %v are left, not %v", c.best, left, want)
		}
	}
}
