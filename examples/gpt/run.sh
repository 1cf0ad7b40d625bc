#!/bin/sh
# A training script for one device. epl-launch makes it a job, and arguments choose the plan:
#
#	epl-launch --num_workers 1 --gpu_per_worker 2 examples/gpt/run.sh -stages 2 -micro_batches 4
#
# Run it from inside the repository. Arguments go to the program.
set -eu

# The pure-Go backend is several times faster with SIMD.
export GOEXPERIMENT="${GOEXPERIMENT-simd}"

exec go run "$(cd "$(dirname "$0")" && pwd)" "$@"
