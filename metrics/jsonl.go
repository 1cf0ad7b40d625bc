// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
)

// JSONL appends records to a file, one JSON object a line: step, time, and the values by name. A value that is not finite, which JSON has no number for, is a string: "NaN", "+Inf", "-Inf".
// After a restart from a checkpoint, the steps since then are there twice; the later line counts.
//
//	{"step":10,"time":"2026-01-02T15:04:05.6Z","values":{"Loss":0.25,"epl/step seconds":0.0125}}
func JSONL(file string) Sink { return &jsonl{path: file} }

type jsonl struct {
	path string
	file *os.File
}

type line struct {
	Step   int64          `json:"step"`
	Time   time.Time      `json:"time"`
	Values map[string]any `json:"values"`
}

func (s *jsonl) Write(r Record) error {
	if s.file == nil {
		f, err := create(s.path, os.O_APPEND)
		if err != nil {
			return err
		}
		s.file = f
	}
	l := line{r.Step, r.Time.UTC(), map[string]any{}}
	for name, x := range r.Values {
		l.Values[name] = x
		switch {
		case math.IsNaN(x):
			l.Values[name] = "NaN"
		case math.IsInf(x, 1):
			l.Values[name] = "+Inf"
		case math.IsInf(x, -1):
			l.Values[name] = "-Inf"
		}
	}
	text, err := json.Marshal(l)
	if err != nil {
		return errors.Wrap(err, "epl: metrics")
	}
	_, err = s.file.Write(append(text, '\n')) // all at once: a line is there or it is not
	return errors.Wrap(err, "epl: metrics")
}

func (s *jsonl) Close() error {
	if s.file == nil {
		return nil
	}
	return errors.Wrap(s.file.Close(), "epl: metrics")
}

// create opens a file to write to, and makes its folder.
func create(path string, how int) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, errors.Wrap(err, "epl: metrics")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|how, 0o644)
	return f, errors.Wrap(err, "epl: metrics")
}
