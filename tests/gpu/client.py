# What the clients of PyTorch share. They are processes, a rank each, of tests/gpu/ranks.
import hashlib
import os
import sys


def skip(why):
    """Ends the process with the status of a skipped test."""
    print(f"{os.path.basename(sys.argv[0])}: skipped: {why}", flush=True)
    sys.exit(77)


try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    skip(f"this Python has no PyTorch ({error})")

on_gpu = "--cpu" not in sys.argv
device = "cuda" if on_gpu else "cpu"
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if on_gpu and not torch.cuda.is_available():
    skip("no CUDA device")
try:
    import gradwire_torch
except ImportError as error:
    skip(str(error))


def begin():
    """Makes the process group of all ranks; all use the first GPU."""
    options = {}
    if on_gpu:
        torch.cuda.set_device(0)
        options["device_id"] = torch.device("cuda:0")
    dist.init_process_group("nccl" if on_gpu else "gloo", init_method="file://" + os.environ["GRADWIRE_ID_FILE"] + ".torch",
                            rank=rank, world_size=world, **options)


def teacher():
    """Inputs and labels of this rank: 2048 rows of 512 numbers, and classes that a matrix gives them."""
    weights = torch.randn(512, 10, generator=torch.Generator().manual_seed(7))
    inputs = torch.randn(2048, 512, generator=torch.Generator().manual_seed(100 + rank))
    return inputs.to(device), (inputs @ weights).argmax(1).to(device)


def network(width=2048):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(512, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(),
                               torch.nn.Linear(width, 10)).to(device)


def synchronize():
    if on_gpu:
        torch.cuda.synchronize()


def hash_of(tensors):
    return hashlib.sha256(b"".join(t.detach().cpu().numpy().tobytes() for t in tensors)).hexdigest()


def check_equal(end, name):
    """Ends with an error where a rank has another hash."""
    ends = [None] * world
    dist.all_gather_object(ends, end)
    assert len(set(ends)) == 1, f"{name}: ranks have different parameters"


def say(text):
    if rank == 0:
        print(f"torch {torch.__version__}, {device}, {text}", flush=True)
