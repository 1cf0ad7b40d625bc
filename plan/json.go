// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/pkg/errors"
)

// Encode writes the plan as JSON, which [Decode] reads back as it was.
func (pl *Plan) Encode(w io.Writer) error {
	text, err := json.MarshalIndent(pl, "", "  ")
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	return errors.Wrap(err, "epl: a plan cannot be written")
}

// Decode reads a plan. One of another version is refused.
func Decode(r io.Reader) (*Plan, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, errors.Wrap(err, "epl: the plan cannot be read")
	}
	var head struct {
		Version *int   `json:"version"`
		EPL     string `json:"epl"`
	}
	if err := json.Unmarshal(text, &head); err != nil || head.Version == nil {
		return nil, errors.New("epl: this is no plan: it is no JSON with a version, as epl plan --json writes it")
	}
	if *head.Version != Version {
		by := ""
		if head.EPL != "" {
			by = fmt.Sprintf(" (by EPL %s)", head.EPL)
		}
		return nil, errors.Errorf("epl: the plan is of version %d%s, and this EPL reads version %d: make it again by epl plan --json", *head.Version, by, Version)
	}
	pl := &Plan{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(pl); err != nil {
		return nil, errors.Wrap(err, "epl: the plan cannot be read: make it again by epl plan --json")
	}
	return pl, nil
}

// Read reads the plan in a file.
func Read(file string) (*Plan, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, errors.Wrap(err, "epl: the plan cannot be read")
	}
	defer f.Close()
	pl, err := Decode(f)
	return pl, In(file, err)
}
