"""A test client of gradwire_torch.Hook: every check runs on all ranks of a small job over Gloo, without gradwire's backend.

hook_client.py SCENARIO [WORLD]   starts the ranks itself, and ends with the status of the worst
"""
import io
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import gradwire_torch
from client import check, model_and_data, same_on_all_ranks, start, values

INT4 = '[defaults]\ncodec = "int4"\nerror_feedback = "on"\n'
NAMES = '[defaults]\ncodec = "int8"\n[[rule]]\nmatch = "4.*"\ncodec = "bf16"\n[[rule]]\nmatch = "*.bias"\ncodec = "exact"\n'


def policy(text):
    """A file with this policy."""
    file = tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False)
    with file:
        file.write(text)
    return file.name


class Given(torch.nn.Module):
    """Its gradients are its arguments; parameters are used in another order than they are registered."""
    def __init__(self, counts):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(count)) for count in counts])

    def forward(self, given):
        total = 0
        for weight, value in zip(self.weights, given):  # so the last gradient comes first, after a delay of its own
            total = total + (weight * value).sum()
        return total


def train(rank, world, hook=None, steps=20, view=False, wrapper=None, group=None, **options):
    """The losses, the parameters at the end, and the hook that `hook(model)` made."""
    model, batches = model_and_data(rank, world)
    ddp = DistributedDataParallel(model, process_group=group, bucket_cap_mb=1, gradient_as_bucket_view=view, **options)
    made = hook(ddp) if hook else None
    if made:
        ddp.register_comm_hook(None, wrapper(made) if wrapper else made)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for inputs, labels in batches[:steps]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(inputs), labels)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=group)
        losses.append(mean / world)
    return torch.stack(losses), torch.cat([p.detach().flatten() for p in model.parameters()]), made


def exact(rank, world):
    """Exact is DDP without a hook: bit by bit with two ranks, where sums have one order only."""
    tolerance = 0.0 if world == 2 else 1e-4
    theirs, their_end, _ = train(rank, world)
    for view in (False, True):
        ours, our_end, hook = train(rank, world, lambda m: gradwire_torch.Hook(m, codec="exact"), view=view)
        check("losses", ours, theirs, tolerance)
        check("parameters", our_end, their_end, tolerance)
        same_on_all_ranks("parameters", our_end, None)
    assert hook.statistics()["steps"] == 20, hook.statistics()


def converges(rank, world):
    """int8, and int4 with feedback, train as DDP does, with ranks equal bit by bit."""
    theirs, their_end, _ = train(rank, world)
    for name, make in (("int8", lambda m: gradwire_torch.Hook(m, codec="int8")),
                       ("int4", lambda m: gradwire_torch.Hook(m, policy=policy(INT4))),
                       ("auto", lambda m: gradwire_torch.Hook(m, codec="auto"))):
        ours, end, hook = train(rank, world, make)
        same_on_all_ranks("parameters", end, None)
        check(f"losses of {name}", ours, theirs, 0.05)
        assert name == "auto" or not torch.equal(end, their_end), "nothing was compressed"
        statistics = hook.statistics()
        assert name == "auto" or statistics["ratio"] > (3 if name == "int8" else 6), statistics
        assert (statistics["residual_bytes"] > 0) == (name == "int4"), statistics
        if rank == 0:
            print(name, "loss", ours[0].item(), "to", ours[-1].item(), "plain", theirs[-1].item(), "ratio",
                  statistics["ratio"], flush=True)
    assert theirs[-1] < 0.95 * theirs[0], "it does not train"


def names(rank, world):
    """Rules match parameters by their names and dimensions."""
    _, _, hook = train(rank, world, lambda m: gradwire_torch.Hook(m, policy=policy(NAMES)), steps=3)
    groups = {group["name"]: (group["codec"], group["tensors"]) for group in hook.statistics()["groups"]}
    assert any("4.*" in name and value == ("bf16", 2) for name, value in groups.items()), groups
    assert any("*.bias" in name and value == ("exact", 3) for name, value in groups.items()), groups
    assert "4.weight" in hook.explain(), hook.explain()


def cumulative(rank, world, model, scale, seed, steps, sums, given=values, begin=0):
    """Adds the results of these steps to sums[0], and the true means to sums[1]."""
    for step in range(begin, begin + steps):
        counts = [w.numel() for w in model.module.weights]
        all_of_them = [[scale * (values(0, c, seed=seed) + given(r, c, seed=seed + 100 * step + i + 1))
                        for i, c in enumerate(counts)] for r in range(world)]
        model.zero_grad()
        model(all_of_them[rank]).backward()
        for i, weight in enumerate(model.module.weights):
            sums[0][i] += weight.grad
            sums[1][i] += torch.stack([each[i] for each in all_of_them]).double().mean(0)


def zeros(counts):
    return [[torch.zeros(count, dtype=torch.float64) for count in counts] for _ in range(2)]


def errors(sums):
    return [((ours - theirs).norm() / theirs.norm()).item() for ours, theirs in zip(*sums)]


def rebuilt(rank, world):
    """DDP rebuilds its buckets after the first step: what was left out of a parameter is added to the same parameter."""
    counts = [90_000, 40_000, 70_001, 30]
    model = DistributedDataParallel(Given(counts), bucket_cap_mb=0.2)
    hook = gradwire_torch.Hook(model, policy=policy(INT4))
    seen = []

    def spy(state, bucket):
        seen.append(tuple(p.numel() for p in bucket.parameters()))
        return hook(state, bucket)

    model.register_comm_hook(None, spy)
    sums = zeros(counts)
    cumulative(rank, world, model, 1.0, 7, 1, sums)
    first, seen[:] = list(seen), []
    cumulative(rank, world, model, 1.0, 7, 1, sums, begin=1)
    assert first != seen, f"buckets were not rebuilt: {first}"
    cumulative(rank, world, model, 1.0, 7, 38, sums, begin=2)
    assert max(errors(sums)) < 0.02, errors(sums)


def scaled(rank, world):
    """Residuals follow the scale of a GradScaler: what was left out at one scale is added at the next."""
    counts = [90_000, 500]
    model = DistributedDataParallel(Given(counts))
    hook = gradwire_torch.Hook(model, policy=policy(INT4))
    model.register_comm_hook(None, hook)
    sums = zeros(counts)
    for scale, begin in ((1024.0, 0), (8.0, 10)):
        hook.set_loss_scale(scale)
        part = zeros(counts)
        cumulative(rank, world, model, scale, 5, 10, part, begin=begin, given=lambda *a, **k: scale * values(*a, **k))
        for total, added in zip(sums, part):
            for one, other in zip(total, added):
                one += other / scale
    assert max(errors(sums)) < 0.03, errors(sums)


def two_models(rank, world):
    """Two models on one group take turns, each with a policy and residuals of its own."""
    counts, scales = [[100_000], [60_000, 500]], [1.0, 100.0]
    models = [DistributedDataParallel(Given(each)) for each in counts]
    hooks = [gradwire_torch.Hook(models[0], policy=policy(INT4)), gradwire_torch.Hook(models[1], codec="bf16")]
    for model, hook in zip(models, hooks):
        model.register_comm_hook(None, hook)
    sums = [zeros(each) for each in counts]
    for step in range(30):
        for m, model in enumerate(models):
            cumulative(rank, world, model, scales[m], m + 1, 1, sums[m], begin=step)
    assert max(errors(sums[0])) < 0.02 and max(errors(sums[1])) < 0.01, [errors(each) for each in sums]
    codecs = [{group["codec"] for group in hook.statistics()["groups"]} for hook in hooks]
    assert codecs == [{"int4"}, {"bf16"}], codecs


def resumes(rank, world):
    """Saved by all ranks, loaded by half of them: the residuals arrive. On as many ranks: bit by bit the same."""
    counts = [90_000, 40_000]
    model = DistributedDataParallel(Given(counts))
    hook = gradwire_torch.Hook(model, policy=policy(INT4))
    model.register_comm_hook(None, hook)
    assert hook.statistics() == {} and hook.state_dict()["step"] == 0
    sums = zeros(counts)
    cumulative(rank, world, model, 1.0, 3, 6, sums)
    file = io.BytesIO()
    torch.save(hook.state_dict(), file)
    file.seek(0)
    mine = torch.load(file)
    assert mine["step"] == 6 and mine["rank"] == rank and mine["world_size"] == world, mine
    states = [None] * world
    dist.all_gather_object(states, mine)

    again = zeros(counts)
    cumulative(rank, world, model, 1.0, 3, 2, again, begin=6)
    hook.load_state_dict(mine)
    repeated = zeros(counts)
    cumulative(rank, world, model, 1.0, 3, 2, repeated, begin=6)
    for one, other in zip(again[0], repeated[0]):
        check("after load_state_dict", other, one)

    half = world // 2
    group = dist.new_group(list(range(half)))
    if rank < half:
        before = [(t - o).norm().item() for o, t in zip(*sums)]
        fewer = DistributedDataParallel(Given(counts), process_group=group)
        resumed = gradwire_torch.Hook(fewer, policy=policy(INT4))
        fewer.register_comm_hook(None, resumed)
        resumed.load_state_dict(states[::-1])
        for _ in range(8):  # gradients of zero: the residuals alone travel
            fewer.zero_grad()
            fewer([torch.zeros(count) for count in counts]).backward()
            for i, weight in enumerate(fewer.module.weights):
                sums[0][i] += weight.grad
        after = [(t - o).norm().item() for o, t in zip(*sums)]
        assert resumed.state_dict()["step"] == 14, resumed.state_dict()
        # One rank sends nothing, so no residual of it travels: it is not in this test's jobs, of 4 ranks.
        assert half == 1 or all(a < 0.01 * b for a, b in zip(after, before)), (before, after)


def no_sync(rank, world):
    """Under no_sync() gradients are only accumulated; the next backward pass reduces their sum."""
    def run(make):
        model, batches = model_and_data(rank, world)
        ddp = DistributedDataParallel(model, bucket_cap_mb=1)
        hook = make(ddp) if make else None
        if hook:
            ddp.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(0, 12, 3):
            optimizer.zero_grad()
            with ddp.no_sync():
                for inputs, labels in batches[i:i + 2]:
                    torch.nn.functional.cross_entropy(ddp(inputs), labels).backward()
            inputs, labels = batches[i + 2]
            torch.nn.functional.cross_entropy(ddp(inputs), labels).backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()]), hook

    theirs, _ = run(None)
    ours, hook = run(lambda m: gradwire_torch.Hook(m, codec="exact"))
    check("parameters", ours, theirs, 0.0 if world == 2 else 1e-4)
    assert hook.statistics()["steps"] == 4, hook.statistics()["steps"]


def unused(rank, world):
    """Parameters without a gradient on some ranks or on all, in some steps."""
    class Branches(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = torch.nn.ModuleList([torch.nn.Linear(300, 300) for _ in range(3)])
            self.frozen = torch.nn.Parameter(torch.ones(10), requires_grad=False)

        def forward(self, x, which):
            return self.heads[which](x).square().mean()

    def run(make):
        torch.manual_seed(11)
        model = Branches()
        ddp = DistributedDataParallel(model, find_unused_parameters=True, bucket_cap_mb=0.2)
        if make:
            ddp.register_comm_hook(None, make(ddp))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(8):
            optimizer.zero_grad(set_to_none=True)
            ddp(values(rank, 30 * 300, seed=step).view(30, 300), (rank + step) % 2).backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    theirs = run(None)
    check("parameters", run(lambda m: gradwire_torch.Hook(m, codec="exact")), theirs, 0.0 if world == 2 else 1e-4)
    ours = run(lambda m: gradwire_torch.Hook(m, policy=policy(INT4)))
    check("parameters with int4", ours, theirs, 0.02)
    same_on_all_ranks("parameters", ours, None)


def wrappers(rank, world):
    """Torch's own wrappers give the hook buckets of another type, and get their results."""
    theirs, their_end, _ = train(rank, world, steps=10)
    ours, end, hook = train(rank, world, lambda m: gradwire_torch.Hook(m, codec="int8"), steps=10,
                            wrapper=default_hooks.fp16_compress_wrapper)
    check("losses", ours, theirs, 0.05)
    same_on_all_ranks("parameters", end, None)
    total = hook.statistics()["all"]
    assert total["bytes_in"] == 2 * total["elements"], "the gradients were not float16"
    hook.set_loss_scale(1024.0)


def sparse(rank, world):
    """A gradient that is sparse takes the group's own way; the others are compressed."""
    def run(make):
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Embedding(1000, 16, sparse=True), torch.nn.Linear(16, 4000))
        ddp = DistributedDataParallel(model)
        hook = make(ddp) if make else None
        if hook:
            ddp.register_comm_hook(None, hook)
        for step in range(4):
            ddp.zero_grad(set_to_none=True)
            ddp(torch.arange(rank, 40 + rank)).square().mean().backward()
            torch.optim.SGD(model.parameters(), lr=1.0).step()
        return torch.cat([p.detach().flatten() for p in model.parameters()]), hook

    theirs, _ = run(None)
    ours, hook = run(lambda m: gradwire_torch.Hook(m, codec="exact"))
    check("parameters", ours, theirs, 1e-6)
    assert sum(group["tensors"] for group in hook.statistics()["groups"]) == 2, hook.statistics()


def uneven(rank, world):
    """Ranks with fewer batches: DDP's join() gives the hook zeros for them."""
    def run(make):
        model, batches = model_and_data(rank, world)
        ddp = DistributedDataParallel(model, bucket_cap_mb=1)
        if make:
            ddp.register_comm_hook(None, make(ddp))
        with ddp.join():
            for inputs, labels in batches[:3 + rank]:
                ddp.zero_grad()
                torch.nn.functional.cross_entropy(ddp(inputs), labels).backward()
                torch.optim.SGD(model.parameters(), lr=0.1).step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    ours = run(lambda m: gradwire_torch.Hook(m, codec="exact"))
    same_on_all_ranks("parameters", ours, None)


def no_store(rank, world):
    """A group of a backend that keeps no store, as mpi does, makes one for its hooks."""
    group = dist.new_group(list(range(world)))
    c10d = dist.distributed_c10d
    groups = c10d._world.pg_map if hasattr(c10d, "_world") else c10d._pg_map
    groups[group] = (groups[group][0], None)
    theirs, their_end, _ = train(rank, world, steps=3)
    _, end, _ = train(rank, world, lambda m: gradwire_torch.Hook(m, codec="exact"), steps=3, group=group)
    check("parameters", end, their_end, 0.0 if world == 2 else 1e-4)


def expect_errors(*cases):
    """Makes each call, which must raise an error of this kind with these words."""
    for call, kind, words in cases:
        try:
            call()
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"no error that names {words}")


def refusals(rank, world):
    """Mistakes of the caller are errors that say what is wrong."""
    model = DistributedDataParallel(Given([100]))
    expect_errors(
            (lambda: gradwire_torch.Hook(model.module), TypeError, "DistributedDataParallel"),
            (lambda: gradwire_torch.Hook(model, codec="int8", policy="a.toml"), ValueError, "policy and codec"),
            (lambda: gradwire_torch.Hook(model, codec="int5"), RuntimeError, "int5"),
            (lambda: gradwire_torch.Hook(model, policy="/nowhere.toml"), RuntimeError, "/nowhere.toml"),
            (lambda: gradwire_torch.Hook(model, codec="int8").load_state_dict({"state": torch.ones(9).byte()}), RuntimeError,
             "state 0"))


def scatter(rank, world):
    """FSDP2's custom reduce-scatter, called as FSDP2 calls it: it needs a newer PyTorch to be called by FSDP2 itself."""
    reduce = gradwire_torch.ReduceScatter(codec="int8")
    cpu, each = torch.device("cpu"), 30_000
    for call, (dtype, tolerance) in enumerate(((torch.float32, 0.02), (torch.bfloat16, 0.03), (torch.float32, 0.02))):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            given = reduce.allocate((world * each,), dtype=dtype, device=cpu)
            output = reduce.allocate(torch.Size([each]), dtype=dtype, device=cpu)
            given.copy_(values(rank, world * each, seed=call + 1))
            exact = given.float().clone()
            dist.all_reduce(exact)
            exact = exact / world if op == dist.ReduceOp.AVG else exact
            result = reduce(output_tensor=output, input_tensor=given, group=dist.group.WORLD, op=op)
            assert result is None, result
            check("segment", output.float(), exact[rank * each:(rank + 1) * each], tolerance)
    other = dist.new_group(list(range(world)))
    output, given = torch.empty(each), torch.full((world * each,), 1.0 + rank)
    reduce(output, given, other, dist.ReduceOp.SUM)
    check("another group", output, torch.full((each,), world * (world + 1) / 2), 0.02)
    expect_errors(
            (lambda: gradwire_torch.ReduceScatter(codec="int4"), ValueError, "needs error feedback"),
            (lambda: reduce(output, given, other, dist.ReduceOp.MAX), ValueError, "neither a sum"),
            (lambda: reduce(output, given, other, dist.ReduceOp.SUM, async_op=True), ValueError, "async_op"),
            (lambda: reduce(output[1:], given, other, dist.ReduceOp.SUM), ValueError, f"{world * each} elements"),
            (lambda: reduce(output.int(), given.int(), other, dist.ReduceOp.SUM), TypeError, "torch.int32"))


def together(rank, world):
    """All of these in one job."""
    for scenario in (exact, converges, names, rebuilt, scaled, two_models, no_sync, unused, wrappers, sparse, uneven, no_store,
                     refusals, scatter):
        scenario(rank, world)
        if rank == 0:
            print(scenario.__name__, "passed", flush=True)


def expect_error(words, call):
    begin = time.time()
    try:
        call()
    except RuntimeError as error:
        assert words in str(error), error
        assert time.time() - begin < 30, "too late"
        print(dist.get_rank(), error, flush=True)
        os._exit(0)
    raise AssertionError("no error")


def dead(rank, world):
    """A rank that ends in a backward pass is an error on the others, in time."""
    model = DistributedDataParallel(Given([100_000, 300]))
    model.register_comm_hook(None, gradwire_torch.Hook(model, policy=policy(INT4)))
    for step in range(10):
        if rank == world - 1 and step == 3:
            os._exit(0)
        if step < 3:
            model([values(rank, 100_000), values(rank, 300)]).backward()
        else:
            expect_error(f"rank {world - 1}", lambda: model([values(rank, 100_000), values(rank, 300)]).backward())


def raises(rank, world):
    """An exception of the backward pass on one rank, whose script then ends, is an error on the others."""
    model = DistributedDataParallel(Given([100_000, 100_000, 300]), bucket_cap_mb=0.2)
    hook = gradwire_torch.Hook(model, codec="int8")
    calls = []

    def fails(state, bucket):
        calls.append(bucket.index())
        if rank == 1 and len(calls) == 6:
            raise ValueError("an error of the script")
        return hook(state, bucket)

    model.register_comm_hook(None, fails)
    given = [values(rank, 100_000), values(rank, 100_000), values(rank, 300)]
    try:
        for step in range(10):
            model(given).backward()
    except (RuntimeError, ValueError) as error:
        assert ("an error of the script" if rank == 1 else "rank 1") in str(error), error
        print(rank, error, flush=True)
        os._exit(0)
    raise AssertionError("no error")


def cannot_begin(rank, world):
    """A rank that cannot read its policy is named by the others in their first backward pass."""
    model = DistributedDataParallel(Given([100_000]))
    if rank == 1:
        expect_error("/nowhere.toml", lambda: gradwire_torch.Hook(model, policy="/nowhere.toml"))
    model.register_comm_hook(None, gradwire_torch.Hook(model, codec="int8"))
    expect_error("rank 1: policy file /nowhere.toml", lambda: model([values(rank, 100_000)]).backward())


def policies_differ(rank, world):
    """Ranks with other policies say so, all of them."""
    model = DistributedDataParallel(Given([100_000]))
    model.register_comm_hook(None, gradwire_torch.Hook(model, codec="int8" if rank == 0 else "bf16"))
    expect_error("int8", lambda: model([values(rank, 100_000)]).backward())


def body(rank, scenario, world, file):
    torch.set_num_threads(1)
    start(rank, world, file, "gloo", scenario)
    globals()[scenario](rank, world)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    scenario = sys.argv[1]
    world = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        os.environ["TMPDIR"] = folder
        mp.spawn(body, (scenario, world, os.path.join(folder, "store")), world)
    print(scenario, world, "done", flush=True)
