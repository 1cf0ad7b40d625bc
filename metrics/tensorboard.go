// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/easyparallel/epl/internal/tfrecord"
)

// TensorBoard writes event files into a folder, as tensorboard --logdir reads them: scalars, and histograms of variables. Every start of a program makes a file of its own; of steps that are
// there twice, after a restart from a checkpoint, TensorBoard shows the later ones.
func TensorBoard(folder string) HistogramSink { return &events{folder: folder} }

type events struct {
	folder string
	file   *os.File
}

// The fields of the messages Event, Summary, Summary.Value and HistogramProto of TensorFlow.
const (
	eventTime, eventStep, eventVersion, eventSummary, eventSession = 1, 2, 3, 5, 7
	sessionStatus, sessionStart                                    = 1, 1
	summaryValue                                                   = 1
	valueTag, valueSimple, valueHistogram                          = 1, 2, 5
	histMin, histMax, histCount, histSum, histSquares              = 1, 2, 3, 4, 5
	histLimits, histBuckets                                        = 6, 7
)

func (s *events) Write(r Record) error {
	var summary []byte
	for _, name := range sorted(r.Values) {
		v := text(nil, valueTag, name)
		v = protowire.AppendTag(v, valueSimple, protowire.Fixed32Type)
		v = protowire.AppendFixed32(v, math.Float32bits(float32(r.Values[name])))
		summary = message(summary, summaryValue, v)
	}
	return s.summary(r.Step, r.Time, summary)
}

// WriteHistogram implements [HistogramSink].
func (s *events) WriteHistogram(step int64, at time.Time, name string, h *Histogram) error {
	var b []byte
	for i, x := range []float64{h.Min, h.Max, float64(h.Count), h.Sum, h.Squares} {
		b = double(b, protowire.Number(histMin+i), x)
	}
	limits, counts := h.Buckets()
	b = message(b, histLimits, packed(limits))
	b = message(b, histBuckets, packed(counts))
	return s.summary(step, at, message(nil, summaryValue, message(text(nil, valueTag, name), valueHistogram, b)))
}

func (s *events) Close() error {
	if s.file == nil {
		return nil
	}
	return errors.Wrap(s.file.Close(), "epl: metrics")
}

// summary writes an event with a summary. The first one of a file is preceded by its version, and by the start of a session: what earlier files have of this step and later ones does not count.
func (s *events) summary(step int64, at time.Time, summary []byte) error {
	if s.file == nil {
		host, _ := os.Hostname()
		name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.epl", at.Unix(), host, os.Getpid())
		f, err := create(filepath.Join(s.folder, name), os.O_TRUNC)
		if err != nil {
			return err
		}
		s.file = f
		start := protowire.AppendVarint(protowire.AppendTag(nil, sessionStatus, protowire.VarintType), sessionStart)
		for _, b := range [][]byte{text(event(0, at), eventVersion, "brain.Event:2"), message(event(step, at), eventSession, start)} {
			if err := s.record(b); err != nil {
				return err
			}
		}
	}
	return s.record(message(event(step, at), eventSummary, summary))
}

func event(step int64, at time.Time) []byte {
	b := double(nil, eventTime, float64(at.UnixNano())/1e9)
	return protowire.AppendVarint(protowire.AppendTag(b, eventStep, protowire.VarintType), uint64(step))
}

// record writes a record.
func (s *events) record(data []byte) error {
	_, err := s.file.Write(tfrecord.Append(nil, data))
	return errors.Wrap(err, "epl: metrics")
}

func message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

func text(b []byte, field protowire.Number, s string) []byte { return message(b, field, []byte(s)) }

func double(b []byte, field protowire.Number, x float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(x))
}

func packed(list []float64) (b []byte) {
	for _, x := range list {
		b = protowire.AppendFixed64(b, math.Float64bits(x))
	}
	return b
}
