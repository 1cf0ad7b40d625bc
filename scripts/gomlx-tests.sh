#!/usr/bin/env bash
# Runs GoMLX's own tests on its plain Go backend and on EPL, and prints what passes on the one and fails on the other.
# Documented refusals (internal/gomlxtests/refusals.txt) are allowed, and nothing else: any other difference is status 1.
#
#   scripts/gomlx-tests.sh                                  all packages, EPL with 1 and with 2 devices: half an hour of 2 cores
#   SHORT=-test.short scripts/gomlx-tests.sh                without trainings that take minutes
#   scripts/gomlx-tests.sh ./core/graph ./ml/train          these packages of GoMLX
#   EPL_BACKENDS='epl:devices=4' scripts/gomlx-tests.sh     other backends of EPL's, separated by spaces
#   RESULTS=folder scripts/gomlx-tests.sh                   keep the outputs of the tests there
#
# The module that go.mod names is copied to a temporary folder. Every package with tests gets an external test file that
# imports EPL, so that GOMLX_BACKEND=epl:… works in its test binary; GoMLX's own files stay as they are. XLA, which those
# tests install if they can, is replaced by a stub: neither side runs on it. It needs the network or a filled module cache.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
here=$PWD
backends=(${EPL_BACKENDS:-epl:devices=1 epl:devices=2})
# One op after the other, as EPL runs it: several at a time can deadlock on few cores, and an op that panics ends the process.
# GoMLX leaves some tests out by the name "go"; this is another one, so that both sides run the same.
plain=${PLAIN_BACKEND:-go:ops_sequential}
timeout=${TIMEOUT:-10m}
SHORT=${SHORT:-}
packages=("$@")
[ ${#packages[@]} -gt 0 ] || packages=(./...)

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
results=$(realpath -m "${RESULTS:-$work/results}")
mkdir -p "$results" "$work/xla/compute/xla" "$work/xla/installer"
go mod download github.com/gomlx/gomlx
cp -r "$(go list -m -f '{{.Dir}}' github.com/gomlx/gomlx)" "$work/gomlx"
chmod -R u+w "$work/gomlx"

printf 'module github.com/gomlx/go-xla\n\ngo 1.26\n' >"$work/xla/go.mod"
printf '// Package xla stands in for the real one.\npackage xla\n\n// AutoInstall installs nothing.\nfunc AutoInstall() error { return nil }\n' >"$work/xla/compute/xla/xla.go"
printf '// Package installer stands in for the real one.\npackage installer\n\n// HasNvidiaGPU finds none.\nfunc HasNvidiaGPU() bool { return false }\n' >"$work/xla/installer/installer.go"

cd "$work/gomlx"
export GOFLAGS="${GOFLAGS:-} -mod=mod -tags=noxla" GOWORK=off
cat "$here/go.sum" >>go.sum
go mod edit -require=github.com/easyparallel/epl@v0.0.0 -replace=github.com/easyparallel/epl="$here" -replace=github.com/gomlx/go-xla="$work/xla"
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Name}} {{.Dir}}{{end}}' "${packages[@]}" | while read -r name dir; do
	printf 'package %s_test\n\nimport _ "github.com/easyparallel/epl/default"\n' "$name" >"$dir/zz_epl_test.go"
done

# Test binaries are made once for all backends. Each test has a process of its own: one that panics must not keep others from
# being run.
bin=$work/bin
mkdir "$bin"
printf '==> compiling the tests of GoMLX\n'
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' "${packages[@]}" >"$work/packages"
while read -r package dir; do
	go test -c -o "$bin/${package//\//_}" "$package"
done <"$work/packages"

one() { # backend, file
	printf '==> GoMLX on %s\n' "$1"
	while read -r package dir; do
		binary=$bin/${package//\//_}
		for name in $(cd "$dir" && "$binary" -test.list '^(Test|Example)' 2>/dev/null | grep -E '^(Test|Example)'); do
			# Failed tests are what the comparison is about.
			(cd "$dir" && GOMLX_BACKEND=$1 go tool test2json -t -p "$package" "$binary" -test.v=test2json $SHORT -test.run "^$name\$" -test.timeout "$timeout") </dev/null || true
		done
	done <"$work/packages" >"$2"
}
one "$plain" "$results/plain.json"
status=0
for i in "${!backends[@]}"; do
	one "${backends[i]}" "$results/epl$i.json"
	(cd "$here" && GOFLAGS='' go run ./internal/gomlxtests -plain "$plain" -epl "${backends[i]}" -refusals internal/gomlxtests/refusals.txt \
		"$results/plain.json" "$results/epl$i.json") || status=1
done
exit $status
