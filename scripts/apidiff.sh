#!/usr/bin/env bash
# Compares the packages of api.txt with those of a release, by default the last one, and fails if a program that was written for it may not compile any more, unless the version
# says so: the next one has another major number, or another minor number before v1.
#
#	scripts/apidiff.sh [v0.1.0]
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
if [ -z "$base" ]; then
	echo 'There is no release yet to compare the API with; api.txt has what is promised.'
	exit 0
fi
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/base" 2>/dev/null || true; rm -rf "$dir"' EXIT
go build -o "$dir/apidiff" golang.org/x/exp/cmd/apidiff
git worktree add --quiet --detach "$dir/base" "$base"
changes=
for package in $(sed -n 's/^package //p' api.txt); do
	if ! (cd "$dir/base" && go list "$package" >"$dir/log" 2>&1); then
		continue # it is new
	fi
	(cd "$dir/base" && "$dir/apidiff" -w "$dir/api" "$package")
	changes+=$("$dir/apidiff" -incompatible "$dir/api" "$package" | sed "s,^,$package: ,;\$s/\$/\n/")
done
if [ -z "$changes" ]; then
	echo "The API is compatible with $base."
	exit 0
fi
printf 'Incompatible with %s:\n%s\n' "$base" "$changes"
next=$(sed -n 's/^const Version = "\([0-9]*\)\.\([0-9]*\)\..*/\1 \2/p' internal/version/version.go)
last=$(printf '%s' "$base" | sed -n 's/^v\([0-9]*\)\.\([0-9]*\)\..*/\1 \2/p')
if [ -z "$last" ] || [ "${next% *}" = "${last% *}" ] && { [ "${next% *}" != 0 ] || [ "$next" = "$last" ]; }; then
	echo "internal/version says v${next/ /.}: raise it, or keep what programs use."
	exit 1
fi
