"""moeloom for Python: training of mixtures of experts on CPUs.

`train`, `generate` and `plan` run the program; `moeloom.ops` has the kernels on NumPy's arrays, `moeloom.torch` under
autograd. This module needs neither NumPy, torch nor MPI.
"""

from __future__ import annotations

from ._info import info
from ._mesh import Mesh, mesh
from .errors import (ConfigError, CorruptError, Error, InUseError, IoError, MpiError, OutOfMemoryError, ShapeError,
                     SpentError)
from .run import Run, generate, plan, train

__version__ = "0.2.0"
__all__ = ["ConfigError", "CorruptError", "Error", "InUseError", "IoError", "Mesh", "MpiError", "OutOfMemoryError",
           "Run", "ShapeError", "SpentError", "generate", "info", "mesh", "plan", "train"]
