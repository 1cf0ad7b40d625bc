# A process that trains one of torch_models.py with others: in data parallel (ddp), also with optimizer state sharded (zero), or
# all of it (fsdp, for each layer of the network). See comm_fleet.go for the orders it gets.
import os
import socket
import sys
import time

import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

rank, size, way, by, name, *numbers = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[4:]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=size)
net, _, x, loss = globals()[name](*map(int, numbers))
optimizer = globals()[by]


def ddp():
    global net, opt
    net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    opt = optimizer(net)


def zero():
    global opt
    ddp()
    opt = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-3)


def fsdp():
    global opt
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        raise RuntimeError("PyTorch %s has no FSDP for CPUs (2.6 has)" % torch.__version__)
    from torch.distributed.fsdp import fully_shard

    for layer in net:
        if next(layer.parameters(), None) is not None:
            fully_shard(layer)
    fully_shard(net)
    opt = optimizer(net)


problem = ""
try:
    {"ddp": ddp, "zero": zero, "fsdp": fsdp}[way]()
except RuntimeError as e:
    problem = str(e).split("\n")[0]

host, port = os.environ["EPL_BENCH_FLEET"].rsplit(":", 1)
orders = socket.create_connection((host, int(port))).makefile("rw")
print(rank, file=orders, flush=True)
for line in orders:
    if problem:
        print("cannot", problem, file=orders, flush=True)
        continue
    times = []
    for _ in range(int(line.split()[2])):
        start = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        loss(net(x)).backward()
        opt.step()
        times.append("%.9f" % (time.perf_counter() - start))
    print(*times, file=orders, flush=True)
