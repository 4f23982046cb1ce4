# Runs PyTorch's DDP over NCCL, with a process for each rank, without gradwire. With the drop-in preloaded:
#   tests/gpu/ranks --defaults -- env GRADWIRE_POLICY=python-free-examples/policies/nccl_all_calls.toml LD_PRELOAD=build/cuda/lib/libgradwire_nccl.so python3 tests/gpu/ddp_client.py
import hashlib
import os
import time

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(0)
dist.init_process_group("nccl", init_method="file://" + os.environ["GRADWIRE_ID_FILE"] + ".torch", rank=rank,
                        world_size=world, device_id=torch.device("cuda:0"))
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU(),
                            torch.nn.Linear(2048, 10)).cuda()
ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
weights = torch.randn(512, 10, generator=torch.Generator().manual_seed(7))
inputs = torch.randn(2048, 512, generator=torch.Generator().manual_seed(100 + rank))
labels = (inputs @ weights).argmax(1).cuda()
inputs = inputs.cuda()
for step in range(60):
    if step == 20:
        torch.cuda.synchronize()
        begun = time.time()
    optimizer.zero_grad()
    rows = torch.arange(step * 128, step * 128 + 128, device="cuda") % 2048
    loss = torch.nn.functional.cross_entropy(ddp(inputs[rows]), labels[rows])
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
step_ms = (time.time() - begun) / 40 * 1e3
mean = torch.tensor([loss.item()]).cuda()
dist.all_reduce(mean)
mine = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()
hashes = [None] * world
dist.all_gather_object(hashes, mine)
if rank == 0:
    print(f"torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}: {step_ms:.1f} ms a step, "
          f"mean loss {mean.item() / world:.4f}, ranks equal: {len(set(hashes)) == 1}", flush=True)
dist.destroy_process_group()
