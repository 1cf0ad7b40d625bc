# A process of the benchmark's fleet that communicates by Gloo: see comm_fleet.go for the orders it gets.
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

rank, size = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=size)


def ping_pong(a, b):
    if rank == 0:
        dist.send(a, 1)
        dist.recv(b, 1)
    elif rank == 1:
        dist.recv(b, 0)
        dist.send(a, 0)


ops = {
    "all-reduce": lambda a, b: dist.all_reduce(a),
    "reduce-scatter": lambda a, b: dist.reduce_scatter(b.chunk(size)[rank], list(a.chunk(size))),
    "all-gather": lambda a, b: dist.all_gather(list(b.chunk(size)), a.chunk(size)[rank]),
    "all-to-all": lambda a, b: dist.all_to_all_single(b, a),
    "broadcast": lambda a, b: dist.broadcast(a, 0),
    "send-recv": ping_pong,
}

host, port = os.environ["EPL_BENCH_FLEET"].rsplit(":", 1)
orders = socket.create_connection((host, int(port))).makefile("rw")
print(rank, file=orders, flush=True)
a = b = torch.zeros(0)
for line in orders:
    op, count, repeats = line.split()
    if a.numel() != int(count) // 4:
        a, b = torch.ones(int(count) // 4), torch.ones(int(count) // 4)
    times = []
    try:
        start = time.perf_counter()
        while time.perf_counter() - start < 0.01:  # see comm_worker.go
            pass
        for _ in range(int(repeats)):
            dist.barrier()
            start = time.perf_counter()
            ops[op](a, b)
            times.append((time.perf_counter() - start) / (2 if op == "send-recv" else 1))
        print(*("%.9f" % t for t in times), file=orders, flush=True)
    except RuntimeError as e:
        print("cannot", str(e).split("\n")[0], file=orders, flush=True)
