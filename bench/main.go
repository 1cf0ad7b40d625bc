// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command bench measures EPL against its peers and prints a table of ratios.
//
//	go run ./bench                 # all rows
//	go run ./bench -rows mlp -pairs 50 -json out/bench.json
//
// Every ratio comes from one run in which the two sides take turns, so that a noisy machine disturbs both alike. It
// is the median of the ratios of the pairs, with a bootstrap 95% interval. Above 1: EPL is faster.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"text/tabwriter"
	"time"
)

func main() {
	if os.Getenv(envWorker) != "" {
		if err := beWorker(); err != nil {
			fail(err)
		}
		return
	}
	if name := os.Getenv(envModel); name != "" {
		if err := beStepper(name); err != nil {
			fail(err)
		}
		return
	}
	defer cleanUp()
	rows := flag.String("rows", ".", "regular expression: the rows to measure")
	pairs := flag.Int("pairs", 0, "pairs of measurements per row (0: the row's own number)")
	out := flag.String("json", "", "also write the results to this file")
	markdown := flag.Bool("markdown", false, "print the table as Markdown")
	profile := flag.String("cpuprofile", "", "measure our side alone, and write where it spends its time to this file")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(fmt.Errorf("unknown argument %q: see -h", flag.Arg(0)))
	}
	match, err := regexp.Compile(*rows)
	if err != nil {
		fail(fmt.Errorf("-rows: %w", err))
	}
	if *pairs < 0 {
		fail(fmt.Errorf("-pairs %d: must be positive", *pairs))
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			fail(err)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			fail(err)
		}
		defer pprof.StopCPUProfile()
	}
	report := Report{Go: runtime.Version(), CPUs: runtime.NumCPU(), SIMD: simd(), When: time.Now().UTC().Format(time.RFC3339)}
	for _, row := range Rows {
		if !match.MatchString(row.Name) {
			continue
		}
		if *pairs > 0 {
			row.Pairs = *pairs
		}
		fmt.Fprintf(os.Stderr, "%s: %d pairs …\n", row.Name, row.Pairs)
		row.alone = *profile != ""
		results, err := row.Measure()
		if err != nil {
			fail(fmt.Errorf("%s: %w", row.Name, err))
		}
		report.Results = append(report.Results, results...)
	}
	if len(report.Results) == 0 {
		fail(fmt.Errorf("no row matches %q", *rows))
	}
	if *markdown {
		report.printMarkdown()
	} else {
		report.print()
	}
	if *out != "" {
		if err := report.write(*out); err != nil {
			fail(err)
		}
	}
}

// cleanUp ends what the rows have started.
func cleanUp() {
	stopFleets()
	for _, dir := range temporary {
		_ = os.RemoveAll(dir)
	}
	for _, f := range cleanUps {
		f()
	}
}

// cleanUps undo what was made outside the program's files.
var cleanUps []func()

func fail(err error) {
	cleanUp()
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// Report is what one run of the command found.
type Report struct {
	Go      string   `json:"go"`
	CPUs    int      `json:"cpus"`
	SIMD    bool     `json:"simd"`
	When    string   `json:"when"`
	Results []Result `json:"results"`
}

// Result is one row of the table.
type Result struct {
	Row     string  `json:"row"`
	Peer    string  `json:"peer"`
	Ours    float64 `json:"ours_ms"` // medians
	Theirs  float64 `json:"peer_ms"`
	Ratio   float64 `json:"ratio"` // peer over ours: above 1, EPL is faster
	Low     float64 `json:"low"`   // bootstrap 95% interval of Ratio
	High    float64 `json:"high"`
	Pairs   int     `json:"pairs"`
	Target  float64 `json:"target,omitempty"`  // what Ratio should be at least
	Unit    string  `json:"unit,omitempty"`    // of what is not in milliseconds
	Skipped string  `json:"skipped,omitempty"` // why there is no number
}

func (r *Report) print() {
	fmt.Printf("%s, %d CPUs, simd %v\n", r.Go, r.CPUs, r.SIMD)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "row\tpeer\tEPL ms\tpeer ms\tpeer/EPL\t95%\tpairs\ttarget")
	for _, x := range r.Results {
		if x.Skipped != "" {
			fmt.Fprintf(w, "%s\t%s\tskipped: %s\n", x.Row, x.Peer, x.Skipped)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%.3f%s\t%.3f%s\t%.3f\t%.3f–%.3f\t%d\t%s\n", x.Row, x.Peer, x.Ours, x.unit(), x.Theirs, x.unit(), x.Ratio, x.Low, x.High, x.Pairs, x.verdict())
	}
	w.Flush()
}

func (x *Result) unit() string {
	if x.Unit == "" {
		return ""
	}
	return " " + x.Unit
}

// printMarkdown prints the table for a document.
func (r *Report) printMarkdown() {
	fmt.Println("| row | peer | EPL ms | peer ms | peer/EPL | 95% | pairs | target |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, x := range r.Results {
		if x.Skipped != "" {
			fmt.Printf("| %s | %s | skipped: %s | | | | | |\n", x.Row, x.Peer, x.Skipped)
			continue
		}
		fmt.Printf("| %s | %s | %.3g%s | %.3g%s | %.2f | %.2f–%.2f | %d | %s |\n", x.Row, x.Peer, x.Ours, x.unit(), x.Theirs, x.unit(), x.Ratio, x.Low, x.High, x.Pairs, x.verdict())
	}
}

// verdict compares the ratio with its target.
func (x *Result) verdict() string {
	switch {
	case x.Target == 0:
		return ""
	case x.Ratio >= x.Target:
		return fmt.Sprintf("%g: ok", x.Target)
	}
	return fmt.Sprintf("%g: below", x.Target)
}

func (r *Report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// simd tells whether the binary was built with GOEXPERIMENT=simd, without which the pure-Go backend is much slower.
func simd() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "GOEXPERIMENT" {
			return regexp.MustCompile(`\bsimd\b`).MatchString(s.Value)
		}
	}
	return false
}
