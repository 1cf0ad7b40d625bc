// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import "strings"

// Faults are asked when a checkpoint is written, for drills.
type Faults interface {
	// Save is called when a worker begins to write its file.
	Save()
	// Write is called before something is written. An error is that of the write, before which part is to be called: it writes some of it.
	Write(part func()) error
}

// WithFaults is a file system in which writing fails as faults say.
func WithFaults(f FS, faults Faults) FS { return faulty{f, faults} }

type faulty struct {
	FS
	faults Faults
}

// Create implements FS.
func (f faulty) Create(name string) (Writer, error) {
	if strings.HasSuffix(name, ".safetensors") {
		f.faults.Save()
	}
	w, err := f.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return faultyWriter{w, f.faults}, nil
}

type faultyWriter struct {
	Writer
	faults Faults
}

// Write implements Writer.
func (w faultyWriter) Write(b []byte) (n int, err error) {
	if err := w.faults.Write(func() { n, _ = w.Writer.Write(b[:len(b)/2]) }); err != nil {
		return n, err
	}
	more, err := w.Writer.Write(b[n:])
	return n + more, err
}
