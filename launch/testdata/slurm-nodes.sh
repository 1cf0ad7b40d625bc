#!/bin/sh
# Made by epl-launch --generate slurm. Submit it with sbatch; add --partition, --time and what else the cluster asks for.
#SBATCH --job-name=bert
#SBATCH --ntasks=8
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=2
#SBATCH --output=bert-%j.out

# Who knows the token may join the job, so it is made here, and travels by environment only.
umask 077
EPL_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export EPL_TOKEN

# One launcher for each worker: it finds its place in the variables of Slurm.
exec srun --export=ALL --kill-on-bad-exit=1 epl-launch --devices_per_worker 2 --log_dir logs --task_label bert ./train
