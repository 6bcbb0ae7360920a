"""torch and the library in one process: no name of one is taken for that of the other, in whatever order they come."""

import re
import shutil
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch  # noqa: F401  whose files are looked at
from support import python

from moeloom import _library

# For all to see, as by sys.setdlopenflags() or LD_PRELOAD: then its names come before those that a library brings.
TORCH = "import os, sys; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL); import torch; "
LIBRARY = "import ctypes, os; ctypes.CDLL(os.environ['MOELOOM_LIBRARY'], ctypes.RTLD_GLOBAL); "
NUMBERS = """
import hashlib, numpy as np
from moeloom import ops
random = np.random.default_rng(1)
def drawn(*shape): return random.standard_normal(shape).astype("f4")
x, idx, weights = drawn(40, 64), random.integers(0, 6, (40, 2)), np.abs(drawn(40, 2))
layer = ops.Experts(None, 6, drawn(6, 96, 64), drawn(6, 64, 48))
y, trip = layer.forward(x, idx, weights)
results = [y, *layer.backward(trip, drawn(40, 64)), ops.gmm(drawn(30, 64), drawn(3, 64, 50), np.array([9, 1, 20]))]
import torch
torch.manual_seed(1)
a = torch.randn(300, 200)
results += [(a @ a.T).numpy(), torch.linalg.svd(a[:40]).S.numpy()]
print(*(hashlib.sha256(result.tobytes()).hexdigest()[:12] for result in results))
"""


def names(path, which):
    listed = subprocess.run(["nm", "-D", which, str(path)], capture_output=True, text=True, check=True).stdout
    return {re.sub("@.*", "", line.split()[-1]) for line in listed.splitlines()}


def torchs_files():
    """Its own, mapped here."""
    paths = {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if line.count("/")}
    return {path for path in paths if re.search(r"/lib(torch|c10|caffe2|shm)[^/]*\.so", path)}


class Symbols(unittest.TestCase):
    @unittest.skipUnless(shutil.which("nm"), "binutils not installed")
    def test_none_is_of_both(self):
        self.assertTrue(torchs_files())
        of_torch = set().union(*(names(path, "--defined-only") for path in torchs_files()))
        library = _library.library_path()
        self.assertEqual(names(library, "--defined-only") & of_torch, set())
        # What is looked for elsewhere may not be found there.
        self.assertEqual(names(library, "--undefined-only") & of_torch, set())

    def test_numbers_are_the_same_in_every_order(self):
        orders = (NUMBERS, TORCH + NUMBERS, LIBRARY + TORCH + NUMBERS)
        with ThreadPoolExecutor(2) as pool:
            printed = list(pool.map(lambda code: python(code, OMP_NUM_THREADS="2"), orders))
        self.assertEqual(len(set(printed)), 1, printed)


if __name__ == "__main__":
    unittest.main()
