// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"encoding/binary"
	"math"

	"github.com/pkg/errors"
)

// CompileOptions say for which devices a program is compiled, and how. The zero value compiles for one device.
type CompileOptions struct {
	// Replicas and Partitions of the program; 0 means 1. All of them run the same code on their own data; collectives in the
	// program name them by replica and partition.
	Replicas, Partitions int

	// Devices are the ids of the devices, [Replicas][Partitions] row by row. nil leaves the choice to the plugin.
	Devices []int

	// Shardy partitions the program by its sdy annotations, GSPMD by its mhlo.sharding attributes. Without them, a program of
	// several partitions is taken as it is.
	Shardy, GSPMD bool

	// Flags are XLA flags for this program alone, without dashes, such as "xla_gpu_enable_triton_gemm": bool, int, int64,
	// float64 or string.
	Flags map[string]any
}

// proto returns the options as a serialized xla.CompileOptionsProto.
func (o CompileOptions) proto() ([]byte, error) {
	replicas, partitions := max(o.Replicas, 1), max(o.Partitions, 1)
	var build message   // ExecutableBuildOptionsProto
	build.number(1, -1) // device_ordinal
	build.number(4, int64(replicas))
	build.number(5, int64(partitions))
	build.yes(6, o.Shardy || o.GSPMD) // use_spmd_partitioning
	if o.Devices != nil {
		if len(o.Devices) != replicas*partitions {
			return nil, errors.Errorf("pjrt: a program of %d replicas and %d partitions runs on %d devices, not %d", replicas, partitions, replicas*partitions, len(o.Devices))
		}
		var assignment message // DeviceAssignmentProto
		assignment.number(1, int64(replicas))
		assignment.number(2, int64(partitions))
		for p := range partitions {
			var replicaDevices message // ComputationDevice
			for r := range replicas {
				replicaDevices.number(1, int64(o.Devices[r*partitions+p]))
			}
			assignment.bytes(3, replicaDevices)
		}
		build.bytes(9, assignment)
	}
	build.yes(19, o.Shardy) // use_shardy_partitioner
	var m message
	m.bytes(3, build)
	for _, name := range sortedKeys(o.Flags) {
		var v message // OptionOverrideProto
		switch x := o.Flags[name].(type) {
		case string:
			v.bytes(1, []byte(x))
		case bool:
			v.number(2, 0)
			if x {
				v[len(v)-1] = 1
			}
		case int:
			v.number(3, int64(x))
		case int64:
			v.number(3, x)
		case float64:
			v = binary.LittleEndian.AppendUint64(append(v, 4<<3|1), math.Float64bits(x))
		default:
			return nil, errors.Errorf("pjrt: XLA flag %s is a %T; flags are bool, int, int64, float64 or string", name, x)
		}
		var entry message // of the map env_option_overrides
		entry.bytes(1, []byte(name))
		entry.bytes(2, v)
		m.bytes(7, entry)
	}
	return m, nil
}

// message is a protocol buffer that is being written. The package writes this one only, so it needs no generated code.
type message []byte

func (m *message) number(field int, n int64) {
	*m = binary.AppendUvarint(binary.AppendUvarint(*m, uint64(field)<<3), uint64(n))
}

func (m *message) yes(field int, b bool) {
	if b {
		m.number(field, 1)
	}
}

func (m *message) bytes(field int, b []byte) {
	*m = append(binary.AppendUvarint(binary.AppendUvarint(*m, uint64(field)<<3|2), uint64(len(b))), b...)
}
