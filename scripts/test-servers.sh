#!/bin/sh
# Installs what some tests start for themselves: MPI, etcd, Slurm, network namespaces, Chromium. It needs Debian's apt-get and root;
# without them, and where a package is not to be had, those tests skip with a word that says so.
set -u
packages='openmpi-bin libopenmpi-dev etcd-server slurmctld slurmd slurm-client munge iproute2 chromium fonts-dejavu-core'

missing=''
for p in $packages; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
if [ -z "$missing" ]; then
	echo "all there: $packages"
	exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "SKIPPED: installing$missing needs root and apt-get. The tests that use them will skip."
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || true
for p in $missing; do
	# No servers of the system's own: the tests start theirs.
	RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "$p" >/dev/null 2>&1 && echo "installed $p" || echo "SKIPPED: $p cannot be installed"
done
