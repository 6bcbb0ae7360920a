"""Programs on several ranks: what each printed, and how the job ended.

    done = on_ranks(2, '''
        mesh = moeloom.mesh(ep=2)
        print(mesh.rank)
    ''')
"""

import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

from support import PACKAGE

from moeloom._program import environment

HERE = Path(__file__).resolve().parent

# Begins a program: layer(mesh), a small one's experts, and x, topk_idx, topk_weights for it.
LAYER = """
import os, sys, threading, time
import numpy as np
import moeloom
from moeloom import ops

def layer(mesh, number=0, experts=5):
    held = mesh.experts_of(experts)[1]
    stacks = np.ones((held, 12, 8), "f4"), np.ones((held, 8, 6), "f4")
    made = ops.Experts(mesh, experts, *stacks)
    made._experts = mesh.ep_row.experts(experts, "silu", number)
    return made

x, topk_idx, topk_weights = np.ones((3, 8), "f4"), np.zeros((3, 1), "i8"), np.ones((3, 1), "f4")
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str
    seconds: float

    @property
    def text(self):
        return self.out + self.err


def on_ranks(ranks, code, *arguments, seconds=600, **variables):
    """A Python program on so many ranks, one thread each. Killed after `seconds`, which is a failure."""
    environ = {**environment(), "PYTHONPATH": f"{PACKAGE}:{HERE}", "OMP_NUM_THREADS": "1", **variables}
    mpirun = shlex.split(os.environ.get("MOELOOM_MPIRUN", "mpirun"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.py")
        file.write_text(textwrap.dedent(code))
        began = time.monotonic()
        done = subprocess.run([*mpirun, "-n", str(ranks), sys.executable, str(file), *map(str, arguments)],
                              capture_output=True, text=True, env=environ, timeout=seconds, check=False)
    return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def succeeds(ranks, code, *arguments, **named):
    """The same of a program that has to end well -> what it printed."""
    done = on_ranks(ranks, code, *arguments, **named)
    assert done.code == 0, done.text
    return done.out
