#!/bin/sh
# A training script for one device. epl-launch makes it a job of several workers, over which the experts are split:
#
#	epl-launch --num_workers 2 --gpu_per_worker 1 examples/moe/run.sh
#
# Run it from inside the repository. Arguments go to the program.
set -eu

# The pure-Go backend is several times faster with SIMD.
export GOEXPERIMENT="${GOEXPERIMENT-simd}"

exec go run "$(cd "$(dirname "$0")" && pwd)" "$@"
