"""What this machine and this process have."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path
from typing import Any, Dict, List

from . import _program
from ._library import library
from .errors import IoError


def _openmp_runtimes() -> List[str]:
    """Files of OpenMP in this process. Two have a team of threads each: let one of them have one thread."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    paths = {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if line.count("/")}
    return sorted(path for path in paths if re.search(r"/lib(gomp|omp|iomp5)[-.][^/]*$", path))


def info() -> Dict[str, Any]:
    """library, version, abi, level (of the processors it was compiled for), mpi, blas, openmp runtimes, program."""
    loaded = library()
    text = ctypes.create_string_buffer(4096)
    loaded.ml_machine(text, len(text))
    try:
        program = _program.program()
    except IoError:
        program = None
    return {"library": loaded.path, **json.loads(text.value), "openmp": _openmp_runtimes(), "program": program}
