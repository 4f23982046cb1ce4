# Runs PyTorch's FSDP2 with gradwire_torch.ReduceScatter, with a process for each rank, and compares it with FSDP2's own
# reduce-scatter. With --cpu it runs over Gloo. The module must have been built for this Python's PyTorch:
#   PYTHONPATH=build/cuda/lib/gradwire/python tests/gpu/ranks --defaults -- python3 tests/gpu/fsdp_client.py
# Exits with 77 where PyTorch has no FSDP2, or there is no CUDA device, or no module.
import sys
import time

import client
from client import dist, torch

try:
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
except ImportError:
    client.skip(f"PyTorch {torch.__version__} has no FSDP2")
if not hasattr(FSDPModule, "set_custom_reduce_scatter"):
    client.skip(f"the FSDP2 of PyTorch {torch.__version__} takes no other reduce-scatter")

steps = 60 if client.on_gpu else 12


class Counted:
    """A reduce-scatter of gradwire that counts its calls."""

    def __init__(self, **options):
        self.inner = client.gradwire_torch.ReduceScatter(**options)
        self.calls = 0

    def allocate(self, size, *, dtype, device):
        return self.inner.allocate(size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        self.calls += 1
        return self.inner(output_tensor, input_tensor, group, op, async_op)


def train(reduce_scatter, reduce_dtype):
    """Milliseconds a step, the mean loss, and a hash of all parameters."""
    model = client.network(2048 if client.on_gpu else 256)
    options = {"mp_policy": MixedPrecisionPolicy(reduce_dtype=reduce_dtype)} if reduce_dtype else {}
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    if reduce_scatter:
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_custom_reduce_scatter(reduce_scatter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        if step == steps // 3:
            client.synchronize()
            begun = time.time()
        optimizer.zero_grad()
        rows = torch.arange(step * 128, step * 128 + 128, device=client.device) % 2048
        loss = torch.nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
    client.synchronize()
    step_ms = (time.time() - begun) / (steps - steps // 3) * 1e3
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return step_ms, mean.item() / client.world, client.hash_of([p.full_tensor() for p in model.parameters()])


def row(name, reduce_scatter=None, reduce_dtype=None):
    step_ms, loss, end = train(reduce_scatter, reduce_dtype)
    client.check_equal(end, name)
    calls = "" if reduce_scatter is None else f", {reduce_scatter.calls} reduce-scatters"
    assert reduce_scatter is None or reduce_scatter.calls >= 3 * steps, f"{name}: FSDP2 made{calls}"
    client.say(f"FSDP2, {name}: {step_ms:.1f} ms a step, mean loss {loss:.4f}{calls}, ranks equal")
    return loss, end


client.begin()
mesh = dist.init_device_mesh(client.device, (client.world,))
inputs, labels = client.teacher()
plain, plain_end = row("its own reduce-scatter")
exact, _ = row("exact", Counted(codec="exact"))
assert abs(exact - plain) < 1e-3, (exact, plain)
compressed, compressed_end = row("int8", Counted(codec="int8"))
assert abs(compressed - plain) < 0.1, (compressed, plain)
assert compressed_end != plain_end, "int8 changed nothing: was anything compressed?"
of_bf16, _ = row("int8 of bfloat16", Counted(codec="int8"), torch.bfloat16)
assert abs(of_bf16 - plain) < 0.1, (of_bf16, plain)
dist.destroy_process_group()
sys.stdout.flush()
