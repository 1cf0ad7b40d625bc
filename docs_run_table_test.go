// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import "regexp"

// The reader's own program: ./train, and the one whose folder "go run ." is called in.
const (
	ownProgram = "examples/auto"
	ownFolder  = "examples/line"
)

// rule is what the test does with the commands that match an expression. The first rule that matches counts; one that matches nothing is an error.
type rule struct {
	command *regexp.Regexp
	not     string // they are not run, for this reason
	instead string // they are written otherwise, as by ReplaceAll, so that they end sooner
	before  string // a reader has done this before
	status  int    // they end with this exit status
}

func not(command, why string) rule { return rule{command: regexp.MustCompile(command), not: why} }

func instead(command, text string) rule {
	return rule{command: regexp.MustCompile(command), instead: text}
}

func after(before, command string) rule {
	return rule{command: regexp.MustCompile(command), instead: "$0", before: before}
}

const (
	measures  = "a benchmark or measurement, of minutes"
	inCI      = "a test or check that CI runs as such, or a long version of one"
	network   = "needs the network"
	machines  = "needs other machines, or their scheduler"
	mpi       = "needs MPI or torchrun"
	gpu       = "needs a GPU, or JAX"
	noCommand = "the name of a command, in a sentence"
)

var rules = []rule{
	not(`^(CGO_ENABLED=0 )?go test |^make [^b]|^go run \./internal/equiv/fuzz`, inCI),
	not(`@latest|\bhf download|^for f in |^wget |openai-community|data/bert-base-uncased `, network),
	not(`^pip install|^python3 |^\./pjrt\.test |^\./gpu$|^\./nccl -parallel 3$`, gpu),
	not(`^apt-get |-tags mpi|mpirun|torchrun`, mpi),
	not(`^docker |^kubectl |^sbatch |--hosts|--machine_list|--rdzv`, machines),
	not(`^go run \./cmd/epl-launch$`, noCommand),
	not(`-data images`, "needs images of the reader's"),
	not(`^epl checkpoint (im|ex)port `, "needs a BERT of 110 million parameters; the tests of cmd/epl have smaller ones"),
	not(`epl calibrate$`, "measures for most of a minute; a test of cmd/epl measures less"),

	instead(`^go run \./bench -rows '\^mlp-512' -pairs 50$`, "$0 -pairs 1"),
	instead(`^go run \./bench/dashboard .*$`, "$0 -rounds 1 -turns 1 -steps 10"),
	not(`go run \./bench\b|^make bench`, measures),

	instead(`^(go run ./examples/moe .*)-steps 20 -compare$`, "${1}-steps 1 -layers 1 -compare"),
	after(`yes '{"text": "a line, another line"}' | head -n 2000 >my.jsonl`, `-text my\.jsonl -pack`),
	instead(`^go run \./examples/gpt -data data.*`, "$0 -steps 3"),
	instead(`.*gpt -size xl.*`, "$0 -layers 4"),
	instead(`.*go run \./examples/(bert|classification|moe|resnet|gpt)\b.*`, "$0 -steps 2"),
	instead(`.*examples/\w+/run\.sh.*`, "$0 -steps 2"),
	instead(`.*go run \./examples/elastic.*`, "$0 -steps 20 -pause 1ms"),
	instead(`^epl drill -- `, "epl drill --only kill -- "),
	instead(`^epl-launch --num_workers 2:4.* \./train$`, "$0 -devices 1"),
	instead(`^\./nccl -backend go$`, "$0 -processes 2 -run 'ZeRO v1'"),
	instead(`^epl new --module`, `epl new --epl "$$DOCS_ROOT" --module`),
	{command: regexp.MustCompile(`^EPL_FAULTS="kill:.*`), instead: "$0 -devices 1", status: 137},
	{command: regexp.MustCompile(`^EPL_FAULTS="delay:.*`), instead: "$0 -devices 1"},
	after(`mkdir -p "$XDG_CONFIG_HOME/epl/profiles" && cp "$DOCS_ROOT/cost/profiles/V100-32.json" "$XDG_CONFIG_HOME/epl/profiles/this.json"`, `^epl simulate --devices 2 `),
	after("epl plan --workers 2 --devices 4 --json plan.json -- ./train", `^epl-launch --num_workers 2 --plan plan\.json`),
}
