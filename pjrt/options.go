// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// ClientOptions are what a client is made with. The zero value leaves everything to the plugin.
type ClientOptions struct {
	// Allocator manages the memory of GPUs: "bfc" (XLA's pool), "cuda_async", "vmm", "platform" (no pool: slow, for
	// debugging), or "default".
	Allocator string

	// MemoryFraction is the part of a GPU's memory that the pool may take, and Preallocate says whether it takes it at once.
	// XLA's defaults are 0.75 and true.
	MemoryFraction float32
	Preallocate    *bool

	// CollectiveMemory is the size in bytes of the memory that NCCL registers for zero-copy collectives.
	CollectiveMemory int64

	// VisibleDevices are the local GPUs that the client takes; nil means all.
	VisibleDevices []int64

	// A client over several processes: how many they are, which one this is, and where they exchange addresses.
	NumProcesses, ProcessIndex int
	Store                      KeyValueStore

	// Other options of the plugin, by name, such as "enable_mock_nccl": string, int, int64, []int64, float32 or bool.
	Other map[string]any
}

// OptionsFromEnv returns the options that JAX's environment variables ask for: XLA_PYTHON_CLIENT_ALLOCATOR,
// XLA_CLIENT_MEM_FRACTION (or XLA_PYTHON_CLIENT_MEM_FRACTION), XLA_PYTHON_CLIENT_PREALLOCATE and
// XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB.
func OptionsFromEnv() (ClientOptions, error) {
	var o ClientOptions
	o.Allocator = strings.ToLower(os.Getenv("XLA_PYTHON_CLIENT_ALLOCATOR"))
	for _, name := range []string{"XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"} {
		if text := os.Getenv(name); text != "" {
			f, err := strconv.ParseFloat(text, 32)
			if err != nil {
				return o, errors.Errorf("pjrt: %s=%s is not a number", name, text)
			}
			o.MemoryFraction = float32(f)
		}
	}
	if text := os.Getenv("XLA_PYTHON_CLIENT_PREALLOCATE"); text != "" {
		yes := text != "0" && text != "false" && text != "False"
		o.Preallocate = &yes
	}
	if text := os.Getenv("XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB"); text != "" {
		mb, err := strconv.ParseInt(text, 10, 43)
		if err != nil {
			return o, errors.Errorf("pjrt: XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB=%s is not a number of MiB", text)
		}
		o.CollectiveMemory = mb << 20
	}
	_, err := o.values()
	return o, err
}

// values returns the options by the names that plugins know.
func (o ClientOptions) values() (map[string]any, error) {
	v := maps.Clone(o.Other)
	if v == nil {
		v = map[string]any{}
	}
	if o.Allocator != "" {
		known := []string{"default", "platform", "bfc", "cuda_async", "vmm"}
		if !slices.Contains(known, o.Allocator) {
			return nil, errors.Errorf("pjrt: there is no allocator %q; there are %s", o.Allocator, strings.Join(known, ", "))
		}
		v["allocator"] = o.Allocator
	}
	if o.MemoryFraction < 0 || o.MemoryFraction > 1 || o.MemoryFraction != o.MemoryFraction {
		return nil, errors.Errorf("pjrt: a memory fraction of %g is not between 0 and 1", o.MemoryFraction)
	}
	if o.MemoryFraction > 0 {
		v["memory_fraction"] = o.MemoryFraction
	}
	if o.Preallocate != nil {
		v["preallocate"] = *o.Preallocate
	}
	if o.CollectiveMemory != 0 {
		v["collective_memory_size"] = o.CollectiveMemory
	}
	if len(o.VisibleDevices) > 0 {
		v["visible_devices"] = o.VisibleDevices
	}
	if o.NumProcesses > 1 {
		if o.Store == nil {
			return nil, errors.Errorf("pjrt: a client over %d processes needs a key-value store", o.NumProcesses)
		}
		if o.ProcessIndex < 0 || o.ProcessIndex >= o.NumProcesses {
			return nil, errors.Errorf("pjrt: there is no process %d of %d", o.ProcessIndex, o.NumProcesses)
		}
		v["num_nodes"], v["node_id"] = o.NumProcesses, o.ProcessIndex
	}
	return v, nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
