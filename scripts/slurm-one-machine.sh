#!/bin/sh
# Starts a Slurm cluster of one machine, this one, for tests: with a key, ports and files of its own, all in one directory.
# It needs root and the Debian packages slurmctld, slurmd, slurm-client and munge; no service of the system is touched.
#
#	scripts/slurm-one-machine.sh DIRECTORY CONTROL_PORT NODE_PORT
#
# It stays until its input ends or it is signalled, and then stops what it started. Once "ready" is printed, use the
# cluster with SLURM_CONF=DIRECTORY/slurm.conf.
set -eu
PATH=$PATH:/usr/sbin:/sbin
directory=$1 control_port=$2 node_port=$3
node=$(hostname -s)

started=
stop() {
	trap - EXIT INT TERM
	[ -z "$started" ] || kill $started 2>/dev/null || true
	wait
}
trap stop EXIT
trap 'exit 1' INT TERM

mkdir -p "$directory/state" "$directory/spool" "$directory/munge"
chmod 755 "$directory" "$directory/munge"
(umask 077 && head -c 1024 /dev/urandom >"$directory/munge.key")

cat >"$directory/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$control_port
SlurmdPort=$node_port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$directory/munge/socket
CredType=cred/munge
StateSaveLocation=$directory/state
SlurmdSpoolDir=$directory/spool
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=5
NodeName=$node NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=test Nodes=$node Default=YES MaxTime=5:00 State=UP
END
export SLURM_CONF="$directory/slurm.conf"

munged --foreground --force --key-file "$directory/munge.key" --socket "$directory/munge/socket" \
	--pid-file "$directory/munged.pid" --log-file "$directory/munged.log" --seed-file "$directory/munge.seed" \
	>"$directory/munged.out" 2>&1 </dev/null &
started=$!
slurmctld -D -c -f "$SLURM_CONF" >"$directory/slurmctld.log" 2>&1 </dev/null &
started="$started $!"
slurmd -D -c -f "$SLURM_CONF" >"$directory/slurmd.log" 2>&1 </dev/null &
started="$started $!"

tries=0
until sinfo --noheader --states=idle 2>/dev/null | grep -q "$node"; do
	for process in $started; do
		kill -0 "$process" 2>/dev/null || { echo "one of munged, slurmctld and slurmd has ended; see their logs"; exit 1; }
	done
	tries=$((tries + 1))
	[ $tries -lt 300 ] || { echo 'the node does not come up; see the logs'; exit 1; }
	sleep 0.2
done
echo ready
cat >/dev/null
