# Runs PyTorch's DDP with gradwire_torch.Hook, with a process for each rank, and compares it with DDP without a hook. With
# --cpu it runs over Gloo. The module must have been built for this Python's PyTorch, for a GPU with nvcc and NCCL:
#   PYTHONPATH=build/cuda/lib/gradwire/python tests/gpu/ranks --defaults -- python3 tests/gpu/ddp_hook_client.py
# Exits with 77 where there is no CUDA device, or no module.
import tempfile
import time

import client
from client import dist, torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

steps = 60 if client.on_gpu else 12
int4 = tempfile.NamedTemporaryFile("w", suffix=".toml")
int4.write('[defaults]\ncodec = "int4"\nerror_feedback = "on"\n')
int4.flush()


def hook_of(**options):
    return lambda model: client.gradwire_torch.Hook(model, **options)


def train(make, wrapper=None, resume_at=None):
    """Seconds a step, the mean loss, a hash of the parameters, and the hook's statistics."""
    model = client.network(2048 if client.on_gpu else 256)
    ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0] if client.on_gpu else None, bucket_cap_mb=4)
    hook = make(ddp) if make else None
    if hook:
        ddp.register_comm_hook(None, wrapper(hook) if wrapper else hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        if step == steps // 3:
            client.synchronize()
            begun = time.time()
        if step == resume_at:
            hook.load_state_dict(hook.state_dict())
        optimizer.zero_grad()
        rows = torch.arange(step * 128, step * 128 + 128, device=client.device) % 2048
        loss = torch.nn.functional.cross_entropy(ddp(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)  # a call of the job's own between the hook's
    client.synchronize()
    seconds = (time.time() - begun) / (steps - steps // 3)
    return seconds, mean.item() / client.world, client.hash_of(model.parameters()), hook.statistics() if hook else {}


def row(name, make, wrapper=None, **options):
    seconds, loss, end, statistics = train(make, wrapper, **options)
    client.check_equal(end, name)
    client.say(f"DDP, {name}: {seconds * 1e3:.1f} ms a step, mean loss {loss:.4f}, ratio {statistics.get('ratio', 1):.2f}, "
               "ranks equal")
    return loss, end


client.begin()
inputs, labels = client.teacher()
plain, _ = row("no hook", None)
exact, _ = row("exact", hook_of(codec="exact"))
assert abs(exact - plain) < 1e-3, (exact, plain)
for name, make, wrapper in (("int8", hook_of(codec="int8"), None), ("int4 with feedback", hook_of(policy=int4.name), None),
                            ("int8 of float16", hook_of(codec="int8"), default_hooks.fp16_compress_wrapper)):
    loss, _ = row(name, make, wrapper)
    assert abs(loss - plain) < 0.1, (name, loss, plain)
_, whole = row("int4 again", hook_of(policy=int4.name))
_, resumed = row("int4, saved and loaded halfway", hook_of(policy=int4.name), resume_at=steps // 2)
assert whole == resumed, "a step after load_state_dict() differs"
dist.destroy_process_group()
