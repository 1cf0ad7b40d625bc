# Trains one of torch_models.py in this process, "gpt" or "gpt:sgd" by another optimizer: one step per line on standard input; prints the seconds it took, or, for the
# line "memory", the most bytes that the process had before the model was built, and until now.
import os
import resource
import sys
import time

torch.set_num_threads(os.cpu_count())


def update(count, rows, columns):
    weights = [nn.Parameter(torch.randn(rows, columns)) for _ in range(count)]
    for w in weights:
        w.grad = torch.randn(rows, columns)
    return torch.optim.Adam(weights, lr=1e-3)


def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


before = most()
(name, *by), numbers = sys.argv[1].split(":"), list(map(int, sys.argv[2:]))
if name == "update":  # the optimizer alone
    net, opt = None, update(*numbers)
else:
    net, optimizer, x, loss = globals()[name](*numbers)
    opt = (globals()[by[0]] if by else optimizer)(net)
for line in sys.stdin:
    if line.strip() == "memory":
        print(before, most(), flush=True)
        continue
    start = time.perf_counter()
    if net:
        opt.zero_grad(set_to_none=True)
        loss(net(x)).backward()
    opt.step()
    print(time.perf_counter() - start, flush=True)
