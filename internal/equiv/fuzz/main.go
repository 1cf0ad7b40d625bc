// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command fuzz compares random programs, under random plans, devices, settings and passes, with what one device gives, until it has run so many cases or so long. A case that
// fails is made smaller, as long as it fails alike, and shown with the command that runs it again.
//
//	go run ./internal/equiv/fuzz --cases 10000              cases 1 to 10000
//	go run ./internal/equiv/fuzz --seed 5001 --time 30m     from case 5001 on, for half an hour
//
// The harness is the tests of internal/equiv, which it builds. Cases that failed once are kept in internal/equiv/testdata/corpus, which all test runs go through. The exit
// status is 1 if a case failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/easyparallel/epl/internal/equiv"
)

func main() {
	log.SetFlags(0)
	f := fuzzer{run: run(folderOf("github.com/easyparallel/epl/internal/equiv"))}
	flag.Uint64Var(&f.seed, "seed", 1, "the first case")
	flag.IntVar(&f.cases, "cases", 0, "how many cases; 0: 1000, or as many as the time allows")
	flag.DurationVar(&f.time, "time", 0, "how long, such as 30m; 0: until all cases are run")
	flag.IntVar(&f.piece, "piece", 100, "cases that one process runs; progress is told after each")
	flag.IntVar(&f.shrinks, "shrinks", 200, "tries to make a case smaller; 0: show it as it is")
	one := flag.String("case", "", "run this case only, as JSON, and make it smaller if it fails")
	flag.Parse()
	if flag.NArg() > 0 || f.cases < 0 || f.piece < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	folder, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	f.binary = filepath.Join(folder, "equiv.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", f.binary, "github.com/easyparallel/epl/internal/equiv")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		log.Fatal("fuzz: the tests cannot be built: ", err)
	}
	failed := 0
	if *one == "" {
		failed = f.all(ctx)
	} else if out := f.runCase(ctx, *one); !strings.Contains(out, "--- PASS: TestFuzzCase") {
		failed = 1
		f.show(ctx, failure{json: *one, text: out})
	}
	os.RemoveAll(folder)
	if failed > 0 {
		os.Exit(1)
	}
}

// fuzzer is a run of the command.
type fuzzer struct {
	binary                string
	seed                  uint64
	cases, piece, shrinks int
	time                  time.Duration

	// run runs the tests with flags, and returns what they print.
	run func(ctx context.Context, binary string, args ...string) string
}

// run runs the tests in the folder of their package: they read files of it.
func run(folder string) func(ctx context.Context, binary string, args ...string) string {
	return func(ctx context.Context, binary string, args ...string) string {
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Dir = folder
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
}

// folderOf is the folder of a package; "": it is not known, and the current one has to do.
func folderOf(path string) string {
	out, _ := exec.Command("go", "list", "-f", "{{.Dir}}", path).Output()
	return strings.TrimSpace(string(out))
}

var (
	passed  = regexp.MustCompile(`(?m)^ +--- PASS: TestFuzz/`)
	failing = regexp.MustCompile(`(?m)^ +--- FAIL: TestFuzz/(\d+)`)
	written = regexp.MustCompile(`(?m)case: (\{.*\})$`)
	message = regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: (.*)$`)
	varying = regexp.MustCompile(`[0-9.e+-]+|"[^"]*"|/[\w/]+`)
)

// all runs the cases in pieces, and returns how many failed.
func (f *fuzzer) all(ctx context.Context) (failed int) {
	if f.cases == 0 && f.time == 0 {
		f.cases = 1000
	}
	start, done := time.Now(), 0
	for at := f.seed; ctx.Err() == nil && (f.cases == 0 || done < f.cases) && (f.time == 0 || time.Since(start) < f.time); {
		n := f.piece
		if f.cases > 0 {
			n = min(n, f.cases-done)
		}
		out := f.run(ctx, f.binary, "-test.run=^TestFuzz$", "-test.v", "-test.timeout=1h", "-equiv.fuzz", fmt.Sprint("-equiv.seed=", at), fmt.Sprint("-equiv.seeds=", n))
		if ctx.Err() != nil {
			break
		}
		bad := f.failures(out)
		if len(passed.FindAllString(out, -1))+len(bad) < n { // it did not come to its end: which of them was it?
			bad = nil
			for seed := at; seed < at+uint64(n) && ctx.Err() == nil; seed++ {
				one := f.run(ctx, f.binary, "-test.run=^TestFuzz$", "-test.v", "-equiv.fuzz", fmt.Sprint("-equiv.seed=", seed), "-equiv.seeds=1")
				if !passed.MatchString(one) {
					bad = append(bad, failure{seed: fmt.Sprint(seed), text: one})
				}
			}
		}
		for _, b := range bad {
			failed++
			f.show(ctx, b)
		}
		at, done = at+uint64(n), done+n
		rate := float64(done) / time.Since(start).Minutes()
		log.Printf("fuzz: %d cases, %d failed, %s, %.0f a minute", done, failed, time.Since(start).Round(time.Second), rate)
	}
	return failed
}

// failure is a case that failed. One that took its process with it has only a seed.
type failure struct {
	seed, json, text string
}

// failures are the cases that failed in a run, with what was said of each.
func (f *fuzzer) failures(out string) (all []failure) {
	for _, m := range failing.FindAllStringSubmatch(out, -1) {
		b := failure{seed: m[1]}
		for part := range strings.SplitSeq(out, "=== ") { // what a test says stands behind its name
			if !strings.HasPrefix(part, "NAME  TestFuzz/"+m[1]+"/") && !strings.HasPrefix(part, "CONT  TestFuzz/"+m[1]+"/") {
				continue
			}
			if b.text += part; written.MatchString(part) {
				b.json = written.FindStringSubmatch(part)[1]
			}
		}
		all = append(all, b)
	}
	return all
}

// class tells failures apart: what was said first, without numbers and names.
func class(text string) string {
	m := message.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return varying.ReplaceAllString(m[1], "#")
}

// show makes a case smaller, and says how to run it.
func (f *fuzzer) show(ctx context.Context, b failure) {
	log.Printf("fuzz: a case failed:\n%s", b.text)
	c, err := equiv.ParseCase(b.json)
	if err != nil {
		log.Printf("fuzz: run it again:\n  go run ./internal/equiv/fuzz --seed %s --cases 1", b.seed)
		return
	}
	tries := f.shrinks
	c, tries = f.shrink(ctx, c, class(b.text), tries)
	log.Printf("fuzz: the smallest that fails alike, after %d tries; keep it in internal/equiv/testdata/corpus when it is mended:\n  go test ./internal/equiv -run 'TestFuzzCase$' -v -equiv.case='%s'",
		f.shrinks-tries, c)
}

// runCase runs one case.
func (f *fuzzer) runCase(ctx context.Context, json string) string {
	return f.run(ctx, f.binary, "-test.run=^TestFuzzCase$", "-test.v", "-test.timeout=5m", "-equiv.case="+json)
}

// shrink takes the first smaller case that fails alike, again and again.
func (f *fuzzer) shrink(ctx context.Context, c equiv.Case, alike string, tries int) (equiv.Case, int) {
	for {
		found := false
		for _, s := range c.Smaller() {
			if tries == 0 || ctx.Err() != nil {
				return c, tries
			}
			tries--
			out := f.runCase(ctx, s.String())
			if found = strings.Contains(out, "--- FAIL: TestFuzzCase") && class(out) == alike; found {
				c = s
				break
			}
		}
		if !found {
			return c, tries
		}
	}
}
