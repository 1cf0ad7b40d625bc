#!/bin/bash
# Checks EPL on a machine with a GPU. That machine needs a PJRT plugin (docs/gpu.md), but neither Go nor a C compiler:
#
#	scripts/gpu.sh build FOLDER    # on any machine with Go: makes the programs
#	FOLDER/gpu.sh run              # on the one with the GPU: runs them, and prints a table
set -u
case ${1:-} in
build)
	folder=${2:?the folder for the programs}
	cd "$(dirname "$0")/.." && mkdir -p "$folder" && folder=$(cd "$folder" && pwd)
	export CGO_ENABLED=0
	for test in pjrt hlo exec/xla; do go test -c -ldflags "-s -w" -o "$folder/$(basename $test).test" ./$test || exit 1; done
	for program in gpu gpu/bertlarge gpu/nccl; do go build -ldflags "-s -w" -o "$folder/$(basename $program)" ./examples/$program || exit 1; done
	for program in bench/compile examples/gpt cmd/epl; do go build -ldflags "-s -w" -o "$folder/$(basename $program)" ./$program || exit 1; done
	mkdir -p "$folder/groups" "$folder/many"
	go test ./examples/gpu/nccl -run ModulesOf8Replicas -args -dump "$folder/groups" || exit 1
	go test ./examples/internal/bertlarge -run Many -args -dump "$folder/many" || exit 1
	cp scripts/gpu.sh examples/gpu/nccl/groups.py "$folder/"
	;;
run)
	cd "$(dirname "$0")" || exit 1
	logs=${OUT:-$(mktemp -d)}
	export XLA_PYTHON_CLIENT_PREALLOCATE=${XLA_PYTHON_CLIENT_PREALLOCATE:-false} TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
	export EPL_XLA_CACHE=${EPL_XLA_CACHE:-$(mktemp -d)}
	failed=0
	check() { # NAME COMMAND...
		local name=$1 start=$SECONDS
		shift
		if "$@" >"$logs/$name.log" 2>&1; then verdict=ok; else verdict=FAILED failed=1; fi
		printf '%-28s %4d s  %s\n' "$name" $((SECONDS - start)) "$verdict"
		grep -E '^ *--- FAIL|comparisons failed|comparisons are right|modules are right|compiled in|WRONG|differs by| takes |each, all together|GiB on the device|warm up took' "$logs/$name.log" | cut -c1-200 | sed 's/^/    /'
	}
	check pjrt ./pjrt.test -test.v -test.timeout 5m -test.run Real
	check workers ./xla.test -test.v -test.timeout 5m -test.run Real
	check hlo ./hlo.test -test.v -test.timeout 5m -test.run OnADevice
	check equivalence ./gpu
	check nccl ./nccl -parallel 3
	check groups-on-jax python3 groups.py groups
	check compile-for-64 ./compile many/*.mlir
	small=(-layers 4 -width 512 -heads 8 -hidden 2048 -batch 8 -length 128 -warmup 20)
	check small-step ./bertlarge "${small[@]}" -steps 300
	check small-step-async ./bertlarge "${small[@]}" -steps 1000 -async
	check profile ./epl profile --steps 6:8 -- ./gpt -backend xla:cuda -steps 12
	check bert-large ./bertlarge -warmup 5 -steps 20
	check bert-large-warm-cache ./bertlarge -warmup 1 -steps 20 -async
	echo "logs: $logs"
	exit $failed
	;;
*)
	sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
