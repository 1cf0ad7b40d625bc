#!/bin/bash
# Measures a step of BERT-large on a GPU: EPL with mixed precision, plain GoMLX in bfloat16 and float32, JAX and PyTorch, one
# after the other. It needs python3 with JAX and PyTorch for CUDA, whose PJRT plugin and libraries GoMLX's XLA backend uses, too:
#
#	cd examples/xla && CGO_ENABLED=1 go build -o bertlarge/bertlarge ./bertlarge && bash bertlarge/run.sh
here=$(cd "$(dirname "$0")" && pwd)
plugin=$(python3 - <<'PY'
import glob, site, sys
found = []
for p in list(sys.path) + site.getsitepackages():
    found += glob.glob(p + "/jax_plugins/xla_cuda*/xla_cuda_plugin.so") if p else []
print(found[0] if found else "")
PY
)
[ -n "$plugin" ] || { echo "python3 has no JAX with a CUDA plugin" >&2; exit 1; }
packages=$(dirname "$(dirname "$(dirname "$plugin")")")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ln -s "$plugin" "$tmp/pjrt_c_api_cuda_plugin.so"
export PJRT_PLUGIN_LIBRARY_PATH=$tmp GOMLX_NO_AUTO_INSTALL=1
export LD_LIBRARY_PATH="$(ls -d "$packages"/nvidia/*/lib 2>/dev/null | tr '\n' ':')$LD_LIBRARY_PATH"
for c in "$packages/nvidia/cu13" "$packages/nvidia/cuda_nvcc" /usr/local/cuda; do
	[ -e "$c/nvvm/libdevice/libdevice.10.bc" ] && { export XLA_FLAGS="--xla_gpu_cuda_data_dir=$c $XLA_FLAGS"; break; }
done
for mode in amp bfloat16 float32 amp; do
	backend=xla:cuda
	[ $mode = amp ] && backend=gomlx-xla:cuda # EPL over GoMLX's backend, not its own
	"$here/bertlarge" -backend $backend -modes $mode -warmup 8 -steps 30
done
python3 "$here/peers/bert_jax.py" --steps 20 --batch 32 --seq 512 --attn cudnn | grep RESULT
python3 "$here/peers/bert_torch.py" --steps 20 --batch 32 --seq 512 | grep RESULT
