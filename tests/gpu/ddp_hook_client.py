# Runs PyTorch's DDP over NCCL with gradwire_torch.Hook, with a process for each rank, and compares it with DDP without
# a hook. It was never run on a GPU. The module must have been built for this Python's PyTorch, with nvcc and NCCL:
#   PYTHONPATH=build/cuda/lib/gradwire/python tests/gpu/ranks --defaults -- python3 tests/gpu/ddp_hook_client.py
import hashlib
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import gradwire_torch

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(0)
dist.init_process_group("nccl", init_method="file://" + os.environ["GRADWIRE_ID_FILE"] + ".torch", rank=rank,
                        world_size=world, device_id=torch.device("cuda:0"))
int4 = tempfile.NamedTemporaryFile("w", suffix=".toml")
int4.write('[defaults]\ncodec = "int4"\nerror_feedback = "on"\n')
int4.flush()
weights = torch.randn(512, 10, generator=torch.Generator().manual_seed(7))
inputs = torch.randn(2048, 512, generator=torch.Generator().manual_seed(100 + rank))
labels = (inputs @ weights).argmax(1).cuda()
inputs = inputs.cuda()


def train(make, steps, wrapper=None, resume_at=None):
    """Seconds a step, the mean loss, a hash of the parameters, and the hook's statistics."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU(),
                                torch.nn.Linear(2048, 10)).cuda()
    ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=4)
    hook = make(ddp) if make else None
    if hook:
        ddp.register_comm_hook(None, wrapper(hook) if wrapper else hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        if step == steps // 3:
            torch.cuda.synchronize()
            begun = time.time()
        if step == resume_at:
            hook.load_state_dict(hook.state_dict())
        optimizer.zero_grad()
        rows = torch.arange(step * 128, step * 128 + 128, device="cuda") % 2048
        loss = torch.nn.functional.cross_entropy(ddp(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)  # a call of the job's own between the hook's
    torch.cuda.synchronize()
    seconds = (time.time() - begun) / (steps - steps // 3)
    end = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()
    return seconds, mean.item() / world, end, hook.statistics() if hook else {}


def row(name, make, wrapper=None, **options):
    seconds, loss, end, statistics = train(make, 60, wrapper, **options)
    ends = [None] * world
    dist.all_gather_object(ends, end)
    assert len(set(ends)) == 1, f"{name}: ranks have different parameters"
    if rank == 0:
        print(f"torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}, {name}: {seconds * 1e3:.1f} ms a step, mean loss "
              f"{loss:.4f}, ratio {statistics.get('ratio', 1):.2f}, ranks equal", flush=True)
    return loss, end


plain, _ = row("no hook", None)
exact, _ = row("exact", lambda m: gradwire_torch.Hook(m, codec="exact"))
assert abs(exact - plain) < 1e-3, (exact, plain)
for name, make, wrapper in (("int8", lambda m: gradwire_torch.Hook(m, codec="int8"), None),
                            ("int4 with feedback", lambda m: gradwire_torch.Hook(m, policy=int4.name), None),
                            ("int8 of float16", lambda m: gradwire_torch.Hook(m, codec="int8"),
                             default_hooks.fp16_compress_wrapper)):
    loss, _ = row(name, make, wrapper)
    assert abs(loss - plain) < 0.1, (name, loss, plain)
_, whole = row("int4 again", lambda m: gradwire_torch.Hook(m, policy=int4.name))
_, resumed = row("int4, saved and loaded at step 30", lambda m: gradwire_torch.Hook(m, policy=int4.name), resume_at=30)
assert whole == resumed, "a step after load_state_dict() differs"
dist.destroy_process_group()
