#!/bin/sh
# A training script for one device. epl-launch makes it a job of several workers:
#
#	epl-launch --num_workers 2 --gpu_per_worker 1 examples/resnet/run.sh
#
# Run it from inside the repository. Arguments go to the program.
set -eu

# The pure-Go backend is several times faster with SIMD.
export GOEXPERIMENT="${GOEXPERIMENT-simd}"

# Each worker reads images of its own, and may have one more or less than others, so that nobody decodes in vain.
export EPL_IO_SLICING="${EPL_IO_SLICING-true}"
export EPL_IO_UNBALANCED_IO_SLICING="${EPL_IO_UNBALANCED_IO_SLICING-true}"

exec go run "$(cd "$(dirname "$0")" && pwd)" "$@"
