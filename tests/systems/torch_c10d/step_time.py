"""The time of a step of DDP with a backend: five Linear, 1024 wide, batch 64, 4.2 million parameters, buckets of 4 MiB.

step_time.py BACKEND [STEPS]                two ranks of this host
mpirun ... step_time.py BACKEND STEPS FILE  the ranks of mpirun, which meet in FILE: a new one for each run
"""
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WIDTH = 1024


def body(rank, world, file, backend, steps):
    torch.set_num_threads(1)
    if backend == "gradwire":
        import gradwire_torch  # noqa: F401
    dist.init_process_group(backend, init_method="file://" + file, rank=rank, world_size=world)
    torch.manual_seed(7)
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10)),
                                                      bucket_cap_mb=4, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(64, WIDTH), torch.randint(0, 10, (64,))
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=False)
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        codec = os.environ.get("GRADWIRE_CODEC", "observing") if backend == "gradwire" else "exact"
        print(f"{backend} {codec}: {statistics.median(times) * 1e3:.1f} ms a step", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    backend, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 120
    if len(sys.argv) > 3:
        if os.path.exists("/sys/class/net/lab0"):  # a host of the lab
            os.environ["GLOO_SOCKET_IFNAME"] = "lab0"
        body(int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"]),
             sys.argv[3], backend, steps)
    else:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(body, (2, os.path.join(folder, "store"), backend, steps), 2)
