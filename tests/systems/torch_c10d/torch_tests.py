"""Torch's own tests of collectives, where its package has them, with the backend gradwire. Exit status 77: it has not.

torch_tests.py [NAME...]    BACKEND=gloo runs them without gradwire
"""
import os
import sys
import tempfile
import unittest

try:
    import gradwire_torch  # registers the backend
except ImportError as error:
    print("skipped, because gradwire_torch is not there:", error)
    sys.exit(77)

os.environ.setdefault("BACKEND", "gradwire")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29611")
if "TEMP_DIR" not in os.environ:
    os.environ["TEMP_DIR"] = tempfile.mkdtemp()
    for folder in ("barrier", "test_dir"):
        os.mkdir(os.path.join(os.environ["TEMP_DIR"], folder))
    os.mkdir(os.path.join(os.environ["TEMP_DIR"], "init_dir"))

try:
    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend
except ImportError as error:
    print("skipped, because this package of PyTorch has not its tests of collectives:", error)
    sys.exit(77)


class Collectives(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


# Tests are chosen by the beginning of their name, and by words that it must not contain.
WANTED = ("test_all_reduce", "test_all_gather", "test_broadcast", "test_reduce_", "test_scatter", "test_gather", "test_barrier",
          "test_send_recv", "test_isend", "test_irecv", "test_all_to_all", "test_DistributedDataParallelCPU", "test_get_rank",
          "test_Backend_enum_class", "test_destroy", "test_new_group", "test_ddp_hook_parity_allreduce",
          "test_DistributedDataParallel_non_default")
UNWANTED = ["cuda", "multigpu", "nccl"]
try:
    import torch.distributed._shard.sharded_tensor
except ValueError:  # PyTorch 1.13 with Python 3.11: these fail with Gloo too
    UNWANTED.append("DistributedDataParallelCPU")

if __name__ == "__main__":
    names = sys.argv[1:] or sorted(name for name in dir(Collectives)
                   if name.startswith(WANTED) and not any(word in name for word in UNWANTED))
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(map(Collectives, names)))
    print(f"{os.environ['BACKEND']}: {result.testsRun} of torch's tests, {len(result.skipped)} skipped, {len(result.failures)} failures, "
          f"{len(result.errors)} errors")
    sys.exit(0 if result.wasSuccessful() else 1)
