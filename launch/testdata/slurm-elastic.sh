#!/bin/sh
# Made by epl-launch --generate slurm. Submit it with sbatch; add --partition, --time and what else the cluster asks for.
#SBATCH --job-name=train
#SBATCH --ntasks=8
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --output=train-%j.out
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120

# Who knows the token may join the job, so it is made here, and travels by environment only.
umask 077
EPL_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export EPL_TOKEN

# The launchers meet at this node, and the workers at the port after that. A lost node does not end the others; without this one Slurm
# queues the job again, and it goes on from its checkpoint.
EPL_RDZV="first://$(hostname):$((20000 + SLURM_JOB_ID % 5000 * 2))"
export EPL_RDZV

# 120 seconds before the time limit Slurm sends USR1. Workers whose checkpoints are saved on signals (OnSignal) save and end, and the job is queued again.
again=
trap 'again=1; kill -USR1 "$launchers"' USR1

# One launcher for each worker: it finds its place in the variables of Slurm.
srun --export=ALL --kill-on-bad-exit=0 --no-kill epl-launch --num_workers 4:8 --max_restarts 3 --restart_delay 1m0s ./train &
launchers=$!
wait "$launchers"
status=$?
while kill -0 "$launchers" 2>/dev/null; do # the signal came first
	wait "$launchers"
	status=$?
done
if [ -n "$again" ]; then
	scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
