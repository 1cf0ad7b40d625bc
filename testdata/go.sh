#!/bin/sh
# The command go, for commands of documents that a test runs: programs are beside this script, built already.
set -eu
bin=$(dirname "$0")
case "$1 ${2-}" in
"run .") # in the folder of a program of the reader's
	shift 2
	exec "$bin/$DOCS_FOLDER" "$@"
	;;
"run ./"* | "run /"*)
	name=$(basename "$2")
	shift 2
	exec "$bin/$name" "$@"
	;;
"build -o")
	case $4 in
	.) name=$DOCS_FOLDER ;;
	*) name=$(basename "$4") ;;
	esac
	cp "$bin/$name" "$3"
	;;
"install ./"*) # it is in PATH
	test -x "$bin/$(basename "$2")"
	;;
"env "*)
	exec "$DOCS_GO" "$@"
	;;
*)
	echo "the test of commands in documents does not know: go $*" >&2
	exit 1
	;;
esac
