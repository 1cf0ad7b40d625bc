# Every target is a shorthand for go commands that also work by themselves; none is needed to use EPL.

# The pure-Go backend of GoMLX multiplies matrices at least five times faster with SIMD. "make test GOEXPERIMENT=" does without.
export GOEXPERIMENT ?= simd

# GoMLX's pure-Go backend aliases slices of different types, which the race detector's pointer checks do not allow.
RACE = -race -gcflags=all=-d=checkptr=0

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 14

.PHONY: quickstart
quickstart: ## train the first example
	go run ./examples/quickstart

.PHONY: test
test: ## run all tests
	go test -timeout 40m ./...

.PHONY: lint
lint: ## check formatting, suspicious code and generated files
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'not formatted: run make fmt'; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	go run ./internal/gen -check

.PHONY: race
race: ## run the tests of what runs concurrently under the race detector; needs a C compiler
	CGO_ENABLED=1 go test $(RACE) ./record ./exec/... ./cpu ./cpu/pool ./comm/... ./data ./wire ./rendezvous ./serve ./worker ./compile ./explain ./pjrt
	CGO_ENABLED=1 go test $(RACE) -run '/mlp' ./internal/equiv

.PHONY: mpi
mpi: ## run the tests of communication by MPI; needs a C compiler and openmpi-bin, libopenmpi-dev
	CGO_ENABLED=1 go test -tags mpi -run MPI ./comm ./internal/equiv

.PHONY: gomlx
gomlx: ## run GoMLX's own tests on its plain backend and on EPL, and compare them
	scripts/gomlx-tests.sh

.PHONY: bench
bench: ## measure EPL against its peers
	go run ./bench

# The packages whose tests rewrite golden files with -update; documents, which the root checks, show some of those.
GOLDEN = $(sort $(dir $(shell grep -rl 'flag.Bool..update"' --include='*_test.go' .)))

.PHONY: generate
generate: ## write generated code, golden files, and outputs that documents show
	go generate ./...
	go test $(filter-out ./,$(GOLDEN)) -update
	go test . -run Documents -update

.PHONY: fmt
fmt: ## format the code
	gofmt -w .

.PHONY: ci
ci: ## run what continuous integration runs
	.ci/run
