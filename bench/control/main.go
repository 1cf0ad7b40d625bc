// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command control measures the control plane of a job, on this machine: how long workers take to meet, to agree and to ask each other, what a member costs while nothing
// happens, how soon a worker that is gone is noticed, and what strangers cost.
//
//	go run ./bench/control
//	go run ./bench/control -rows "meet|agree"
//
// The peer is gRPC, in the version that the client of etcd brings, with the least that could do the same: a stream for each member, one call for an agreement, messages as
// JSON, and a token that travels with each call. It does nothing else, so its rows are what gRPC costs at least.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"
)

// row is something that is measured, of one implementation or of both.
type row struct {
	name string
	ours func() (string, error)
	peer func() (string, error) // nil: there is none
}

func rows() (all []row) {
	for _, n := range []int{2, 8, 32} {
		all = append(all, row{name: fmt.Sprintf("meet, %d workers", n), ours: meet(ourJob, n), peer: meet(grpcJob, n)})
	}
	for _, n := range []int{2, 8, 32} {
		all = append(all, row{name: fmt.Sprintf("agree, %d workers", n), ours: agree(ourJob, n), peer: agree(grpcJob, n)})
	}
	return append(all,
		row{name: "idle, 32 workers", ours: idle(ourJob, 32), peer: idle(grpcJob, 32)},
		row{name: "malformed connections", ours: strangers(ourDoor), peer: strangers(grpcDoor)},
		row{name: "1000 silent connections", ours: silent(ourDoor), peer: silent(grpcDoor)},
		row{name: "noticed: a killed process", ours: detect(killed)},
		row{name: "noticed: a cut connection", ours: detect(cut)},
		row{name: "reported: a stopped process", ours: detect(stopped)},
	)
}

func main() {
	if os.Getenv(envWorker) != "" {
		beWorker()
		return
	}
	match := flag.String("rows", "", "only rows that match this regular `expression`")
	flag.Parse()
	wanted, err := regexp.Compile(*match)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, r := range rows() {
		if !wanted.MatchString(r.name) {
			continue
		}
		for _, of := range []struct {
			name    string
			measure func() (string, error)
		}{{"EPL", r.ours}, {"gRPC", r.peer}} {
			if of.measure == nil {
				continue
			}
			text, err := of.measure()
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s, %s: %v\n", r.name, of.name, err)
				os.Exit(1)
			}
			fmt.Printf("%-28s %-5s %s\n", r.name, of.name, text)
		}
	}
}

// spread shows some durations.
func spread(all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("median %s, 99th percentile %s, longest %s", short(all[len(all)/2]), short(all[len(all)*99/100]), short(all[len(all)-1]))
}

func short(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
