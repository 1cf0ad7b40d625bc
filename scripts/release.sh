#!/usr/bin/env bash
# Checks that this commit can be released, and says how: the version is that of the source tree, CHANGELOG.md has it, the API is compatible, and the commands
# can be installed by "go install" from what git has. It changes nothing here and publishes nothing.
#
#	scripts/release.sh 0.1.0
set -euo pipefail
cd "$(dirname "$0")/.."
fail() {
	printf '%s\n' "$*" >&2
	exit 1
}
version=${1:-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || fail 'which version? For example: scripts/release.sh 0.1.0'
[ -z "$(git status --porcelain)" ] || fail 'there are changes that are not committed'
grep -q "^const Version = \"$version\"$" internal/version/version.go || fail "internal/version/version.go does not say $version"
grep -q "^## \[$version\]" CHANGELOG.md || fail "CHANGELOG.md has no section [$version]"
scripts/apidiff.sh

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
module=$(go list -m)
at=$dir/proxy/$module/@v
mkdir -p "$at"
git ls-files '*/go.mod' | sed 's,^\(.*\)/go.mod$,:!\1,' | xargs git archive --format=zip --prefix="$module@v$version/" -o "$at/v$version.zip" HEAD . # modules of their own are not in it
cp go.mod "$at/v$version.mod"
printf '{"Version":"v%s","Time":"%s"}\n' "$version" "$(git log -1 --format=%cI | sed 's/+00:00$/Z/')" >"$at/v$version.info"
echo "v$version" >"$at/list"
for command in epl epl-launch; do
	(cd "$dir" && GOBIN=$dir/bin GOMODCACHE=$dir/cache GONOSUMDB=$module GOFLAGS=-modcacherw \
		GOPROXY="file://$dir/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" go install "$module/cmd/$command@v$version")
done
got=$("$dir/bin/epl" --version)
[ "$got" = "epl $version" ] || fail "the command that was installed says $got"
"$dir/bin/epl-launch" --help >"$dir/help"
printf 'It can be released:\n  git tag -a v%s -m "EPL %s"\n  git push origin v%s\n' "$version" "$version" "$version"
