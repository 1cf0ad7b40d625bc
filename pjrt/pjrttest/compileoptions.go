// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrttest

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/easyparallel/epl/pjrt"
)

// CompileOptions are the options of a compilation, as the plugin reads them.
type CompileOptions struct {
	Replicas, Partitions int
	Devices              []int // [Replicas][Partitions]; nil without an assignment
	SPMD, Shardy         bool
	Flags                map[string]any // bool, int64, float64 or string
}

// fields calls do for every field of a protocol buffer: with its number as n, its bytes as b.
func fields(message []byte, do func(field protowire.Number, n uint64, b []byte) *pjrt.Error) *pjrt.Error {
	for len(message) > 0 {
		field, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return bad("the compile options are no protocol buffer")
		}
		message = message[length:]
		var n uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			n, length = protowire.ConsumeVarint(message)
		case protowire.Fixed64Type:
			n, length = protowire.ConsumeFixed64(message)
		case protowire.BytesType:
			b, length = protowire.ConsumeBytes(message)
		default:
			length = -1
		}
		if length < 0 {
			return bad("the compile options are no protocol buffer: field %d", field)
		}
		if err := do(field, n, b); err != nil {
			return err
		}
		message = message[length:]
	}
	return nil
}

// readCompileOptions reads a serialized xla.CompileOptionsProto.
func readCompileOptions(message []byte) (CompileOptions, *pjrt.Error) {
	o := CompileOptions{Flags: map[string]any{}}
	err := fields(message, func(field protowire.Number, _ uint64, b []byte) *pjrt.Error {
		switch field {
		case 3: // executable_build_options
			return fields(b, o.build)
		case 7: // env_option_overrides
			return o.flag(b)
		}
		return nil
	})
	return o, err
}

func (o *CompileOptions) build(field protowire.Number, n uint64, b []byte) *pjrt.Error {
	switch field {
	case 4:
		o.Replicas = int(n)
	case 5:
		o.Partitions = int(n)
	case 6:
		o.SPMD = n != 0
	case 9: // device_assignment
		var columns [][]int // one per partition
		err := fields(b, func(field protowire.Number, _ uint64, b []byte) *pjrt.Error {
			if field != 3 {
				return nil
			}
			var column []int
			err := fields(b, func(_ protowire.Number, n uint64, _ []byte) *pjrt.Error {
				column = append(column, int(n))
				return nil
			})
			columns = append(columns, column)
			return err
		})
		if err != nil {
			return err
		}
		if len(columns) != o.Partitions {
			return bad("%d columns of devices for %d partitions", len(columns), o.Partitions)
		}
		for r := range o.Replicas {
			for _, column := range columns {
				if len(column) != o.Replicas {
					return bad("%d devices for %d replicas", len(column), o.Replicas)
				}
				o.Devices = append(o.Devices, column[r])
			}
		}
	case 19:
		o.Shardy = n != 0
	}
	return nil
}

func (o *CompileOptions) flag(entry []byte) *pjrt.Error {
	var name string
	var value any
	err := fields(entry, func(field protowire.Number, _ uint64, b []byte) *pjrt.Error {
		if field == 1 {
			name = string(b)
			return nil
		}
		return fields(b, func(field protowire.Number, n uint64, b []byte) *pjrt.Error {
			switch field {
			case 1:
				value = string(b)
			case 2:
				value = n != 0
			case 3:
				value = int64(n)
			case 4:
				value = math.Float64frombits(n)
			}
			return nil
		})
	})
	o.Flags[name] = value
	return err
}
