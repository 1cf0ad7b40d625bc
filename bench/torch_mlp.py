# Trains the MLP of the benchmark: one step per line on standard input; prints the seconds it took.
import os
import sys
import time

import torch
import torch.nn as nn

batch = int(sys.argv[1])
torch.manual_seed(0)
torch.set_num_threads(os.cpu_count())
net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1024))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x, y = torch.randn(batch, 1024), torch.randn(batch, 1024)
for _ in sys.stdin:
    start = time.perf_counter()
    opt.zero_grad(set_to_none=True)
    ((net(x) - y) ** 2).mean().backward()
    opt.step()
    print(time.perf_counter() - start, flush=True)
