// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command startup prints how long training takes to start, in milliseconds. Built from two commits and run in turn, it compares them:
//
//	go build -o /tmp/before ./bench/startup && git checkout other && go build -o /tmp/after ./bench/startup
//	for i in 1 2 3 4 5; do /tmp/before -mode zero; /tmp/after -mode zero; done
//
// A row is a way to train a transformer of 24 layers, in a process of its own. Its parts are: until main runs, epl.Init, the first step without what the second one takes (the
// graph, initial values, plan, schedule and compilation), and the second step. With a launcher, the job has two workers with a device each, and all times begin when it is executed:
//
//	go build -o /tmp/epl-launch ./cmd/epl-launch && /tmp/after -launcher /tmp/epl-launch -mode one -depth 1
package main

import (
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl/bench/transformer"
	"github.com/easyparallel/epl/cluster"
)

// envBegin is when the process was started, in nanoseconds since 1970; it is set in the process that is measured.
const envBegin = "EPL_BENCH_BEGIN"

var (
	which    = flag.String("mode", "one", strings.Join(slices.Sorted(maps.Keys(transformer.Modes)), ", ")+"; or a list of them")
	depth    = flag.Int("depth", 24, "layers of the model")
	runs     = flag.Int("runs", 3, "how often each is measured: the least counts")
	launcher = flag.String("launcher", "", "epl-launch, which starts two workers")
	profile  = flag.String("cpuprofile", "", "write a CPU profile of the last run until the first step into this `file`")
)

// parts are those of a start, in milliseconds.
type parts [4]float64

var names = [...]string{"until main", "epl.Init", "first step", "second step"}

func main() {
	log.SetFlags(0)
	flag.Parse()
	if begin := os.Getenv(envBegin); begin != "" {
		if err := start(begin); err != nil {
			log.Fatal(err)
		}
		return
	}
	fmt.Printf("%-12s", "mode")
	for _, name := range names {
		fmt.Printf("%14s", name)
	}
	fmt.Println()
	for mode := range strings.SplitSeq(*which, ",") {
		if _, ok := transformer.Modes[mode]; !ok {
			log.Fatalf("startup: there is no mode %q", mode)
		}
		least, err := measure(mode)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-12s", mode)
		for _, part := range least {
			fmt.Printf("%14.1f", part)
		}
		fmt.Println()
	}
}

// measure starts processes, and returns the run that was the fastest until its first step.
func measure(mode string) (least parts, err error) {
	self, err := os.Executable()
	if err != nil {
		return least, err
	}
	for i := range *runs {
		line := []string{self, "-mode", mode, "-depth", strconv.Itoa(*depth), "-cpuprofile", *profile}
		if *launcher != "" {
			line = append([]string{*launcher, "--num_workers", "2", "--"}, line...)
		}
		child := exec.Command(line[0], line[1:]...)
		child.Stderr = os.Stderr
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%d", envBegin, time.Now().UnixNano()))
		out, err := child.Output()
		if err != nil {
			return least, fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, out)
		}
		p, err := parse(string(out))
		if err != nil {
			return least, err
		}
		if i == 0 || p[0]+p[1]+p[2] < least[0]+least[1]+least[2] {
			least = p
		}
	}
	return least, nil
}

// parse reads what a process printed; of workers, that of any one, as they wait for each other.
func parse(out string) (p parts, err error) {
	_, line, ok := strings.Cut(out, "parts ")
	if !ok {
		return p, fmt.Errorf("startup: a process printed %q", out)
	}
	_, err = fmt.Sscan(line, &p[0], &p[1], &p[2], &p[3])
	return p, err
}

// start is the process that is measured.
func start(begin string) error {
	nanos, err := strconv.ParseInt(begin, 10, 64)
	if err != nil {
		return err
	}
	last := time.Unix(0, nanos)
	part := func() float64 {
		now := time.Now()
		d := now.Sub(last)
		last = now
		return float64(d.Microseconds()) / 1000
	}
	var p parts
	p[0] = part()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	m := transformer.Modes[*which]
	if n, ok := os.LookupEnv(cluster.EnvNumWorkers); ok && n != "1" {
		m.Devices = 1
	}
	env, err := m.Init()
	if err != nil {
		return err
	}
	defer env.Close()
	p[1] = part()
	loop := train.NewLoop(m.Trainer(env, *depth))
	step := 2
	loop.OnStep("clock", 0, func(*train.Loop, []*tensors.Tensor) error {
		pprof.StopCPUProfile()
		p[step] = part()
		step++
		return nil
	})
	if _, err = loop.RunSteps(env.Dataset(transformer.Sentences{}), 2); err != nil {
		return err
	}
	p[2] -= p[3]
	fmt.Println("parts", p[0], p[1], p[2], p[3])
	return nil
}
