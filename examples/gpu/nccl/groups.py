"""Runs modules of up to 8 replicas on JAX's CPU devices, and compares what each replica gives with what EPL's tests computed without XLA.

    go test ./examples/gpu/nccl -run ModulesOf8Replicas -args -dump FOLDER
    python3 examples/gpu/nccl/groups.py FOLDER
"""
import glob, json, os, sys, time
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS_CPU", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import numpy as np
import jax
import ml_dtypes
from jax._src.interpreters import mlir
from jax._src.lib import xla_client as xc
from jax._src.lib.mlir import ir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.config.update("jax_enable_x64", True)
devices = jax.devices("cpu")
client = devices[0].client


def dtype(name):
    return np.dtype({"bool": np.bool_, "bfloat16": ml_dtypes.bfloat16}.get(name, name))


def compile_text(text, replicas):
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        o = xc.CompileOptions()
        b = o.executable_build_options
        o.num_replicas = b.num_replicas = replicas
        o.num_partitions = b.num_partitions = 1
        ids = np.array([d.id for d in devices[:replicas]]).reshape(replicas, 1)
        o.device_assignment = b.device_assignment = xc.DeviceAssignment.create(ids)
        return client.compile_and_load(module, xc.DeviceList(tuple(devices[:replicas])), o)


def values(data, at, shapes):
    all = []
    for s in shapes:
        d, n = dtype(s["DType"]), int(np.prod(s["Dims"], dtype=np.int64))
        all.append(np.frombuffer(data, d, n, at).reshape(s["Dims"]))
        at += n * d.itemsize
    return all, at


def check(path, least):
    """Returns the largest difference, relative to the largest number of its output, but at least to least, and which output it is."""
    about, data = json.load(open(path + ".json")), open(path + ".bin", "rb").read()
    n, at, took, gave = about["Replicas"], 0, [], []
    for _ in range(n):
        x, at = values(data, at, about["Inputs"])
        took.append(x)
        x, at = values(data, at, about["Outputs"])
        gave.append(x)
    assert at == len(data), "the bytes are not those of the shapes"
    exe = compile_text(open(path + ".mlir").read(), n)
    # JAX takes an array that is the same on all devices, and does not look whether it is.
    same = NamedSharding(Mesh(np.array(devices[:n]), ("d",)), PartitionSpec())
    arrays = [jax.make_array_from_single_device_arrays(took[0][i].shape, same, [jax.device_put(took[d][i], devices[d]) for d in range(n)])
              for i in range(len(about["Inputs"]))]
    outs = exe.execute_sharded(arrays).disassemble_into_single_device_arrays()
    worst, which = 0.0, -1
    for i in range(len(about["Outputs"])):
        for d in range(n):
            want, got = gave[d][i].astype(np.float64), np.asarray(outs[i][d]).astype(np.float64)
            assert want.shape == got.shape, (want.shape, got.shape)
            if want.size:
                diff = float(np.max(np.abs(want - got))) / max(float(np.max(np.abs(want))), least)
                if not diff <= worst:
                    worst, which = diff, i
    return n, worst, which


paths = sorted(p[:-len(".json")] for p in glob.glob(sys.argv[1] + "/*.json"))
right = 0
print("jax", jax.__version__, len(devices), "devices")
for p in paths:
    name, start = os.path.basename(p), time.time()
    # The gradient of keys' biases is 0 but for rounding, which is the larger the shorter the type.
    limit, least = (5e-2, 1e-2) if "bfloat16" in name else (2e-3, 1e-3) if "float16" in name else (1e-4, 1e-3)  # float16 rounds by 5e-4
    try:
        n, worst, which = check(p, least)
        ok = worst <= limit
        print(f"{name:24} {n} replicas  {worst:8.1e} in output {which:3}  {time.time() - start:5.1f} s  {'ok' if ok else 'WRONG'}")
        right += ok
    except Exception as e:
        print(f"{name:24} WRONG: {type(e).__name__}: {str(e)[:600]}")
print(f"{right} of {len(paths)} modules are right")
sys.exit(right != len(paths) or right == 0)
