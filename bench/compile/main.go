// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command compile measures how long XLA compiles modules, also for more GPUs than there are: NCCL is mocked, so that one GPU compiles what many would run.
//
//	go test ./examples/internal/bertlarge -run Many -args -dump FOLDER    # writes the step of BERT-large on 64 GPUs
//	go run ./bench/compile FOLDER/*.mlir
//
// Nothing runs, and nothing is cached. Each module is compiled -times times, and the least counts. The first one of a client also takes what the plugin does once.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/easyparallel/epl/pjrt"
)

var (
	plugin = flag.String("plugin", "cuda", "the plugin")
	times  = flag.Int("times", 2, "how often each module is compiled")
)

func main() {
	flag.Parse()
	path, err := pjrt.Find(*plugin)
	if err != nil {
		log.Fatal(err)
	}
	p, err := pjrt.Load(path)
	if err != nil {
		log.Fatal(err)
	}
	for _, file := range flag.Args() {
		if err := measure(p, file); err != nil {
			log.Fatalf("%s: %v", file, err)
		}
	}
}

var replicasOf = regexp.MustCompile(`mhlo\.num_replicas = (\d+)`)

// measure compiles a module on a client that has as many devices as it has replicas.
func measure(p *pjrt.Plugin, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	found := replicasOf.FindSubmatch(text)
	if found == nil {
		return fmt.Errorf("it does not say how many replicas it has")
	}
	replicas, err := strconv.Atoi(string(found[1]))
	if err != nil {
		return err
	}
	o, err := pjrt.OptionsFromEnv()
	if err != nil {
		return err
	}
	no := false
	o.Preallocate = &no
	// As EPL compiles for several GPUs: see exec/xla.
	how := pjrt.CompileOptions{Replicas: replicas, Flags: map[string]any{"xla_gpu_enable_triton_gemm": false, "xla_gpu_shard_autotuning": false}}
	if replicas > 1 {
		o.Other = map[string]any{"enable_mock_nccl": true, "num_nodes": replicas}
		for i := range replicas {
			how.Devices = append(how.Devices, i)
		}
	}
	client, err := p.NewClient(context.Background(), o)
	if err != nil {
		return err
	}
	defer client.CloseAll()
	var first, best time.Duration
	var memory pjrt.CompiledMemory
	for i := range max(*times, 1) {
		begin := time.Now()
		x, err := client.Compile(text, how)
		if err != nil {
			return err
		}
		took := time.Since(begin)
		if i == 0 {
			first, best = took, took
		}
		best = min(best, took)
		if memory, err = x.Memory(); err != nil {
			return err
		}
		if err := x.Close(); err != nil {
			return err
		}
	}
	const gib = 1 << 30
	fmt.Printf("%s: %d replicas, %.1f MB of text: compiled in %.1f s, the first time %.1f s; arguments %.2f GiB, temporary %.2f GiB\n", filepath.Base(file), replicas,
		float64(len(text))/1e6, best.Seconds(), first.Seconds(), float64(memory.Arguments)/gib, float64(memory.Temporary)/gib)
	return nil
}
