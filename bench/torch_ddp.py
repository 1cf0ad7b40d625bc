# A process that trains an MLP of the benchmark in data parallel, by SGD, Adam, or Adam with optimizer state sharded over processes (ZeRO-1): see
# comm_fleet.go for the orders it gets.
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer

rank, size, batch, width, optimizer = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=size)
net = nn.Sequential(nn.Linear(1024, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1024))
net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
opt = {
    "sgd": lambda: torch.optim.SGD(net.parameters(), lr=1e-3),
    "adam": lambda: torch.optim.Adam(net.parameters(), lr=1e-3),
    "zero": lambda: ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=1e-3),
}[optimizer]()
x, y = torch.randn(batch, 1024), torch.randn(batch, 1024)

host, port = os.environ["EPL_BENCH_FLEET"].rsplit(":", 1)
orders = socket.create_connection((host, int(port))).makefile("rw")
print(rank, file=orders, flush=True)
for line in orders:
    times = []
    for _ in range(int(line.split()[2])):
        start = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        ((net(x) - y) ** 2).mean().backward()
        opt.step()
        times.append("%.9f" % (time.perf_counter() - start))
    print(*times, file=orders, flush=True)
