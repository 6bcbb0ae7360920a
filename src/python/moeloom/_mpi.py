"""Which ranks there are: MPI that this package starts, or mpi4py's, if both mean the same MPI."""

from __future__ import annotations

import json
import os
import sys
import threading
from ctypes import byref, c_void_p, create_string_buffer
from typing import Any, NamedTuple, Optional, Tuple

from ._library import Handle, library
from .errors import ConfigError, MpiError


class Ranks(NamedTuple):
    """handle: the library's group of them. owned: MPI was started here, and ends with the process. thread: the only one
    that may call MPI; None: any, by turns. of_job: this rank of the job, where they may be a part of it."""

    handle: Handle
    owned: bool
    thread: Optional[int]
    of_job: Optional[int] = None


def launched() -> Optional[Tuple[int, int]]:
    """Rank and size by an MPI launcher's variables; None: no launcher's are there."""
    for rank, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
                       ("PMIX_RANK", "SLURM_NTASKS")):
        words = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(word.isdigit() for word in words):
            return int(words[0]), int(words[1])
    return None


def others_run() -> bool:
    """Whether mpi4py has started MPI with several ranks."""
    mpi4py = sys.modules.get("mpi4py.MPI")
    return (mpi4py is not None and mpi4py.Is_initialized() and not mpi4py.Is_finalized() and
            mpi4py.COMM_WORLD is not None and mpi4py.COMM_WORLD.Get_size() > 1)


def ranks_of(comm: Any) -> Ranks:
    """Of mpi4py's comm; None: all of the job, where mpi4py may have started MPI. Collective over them."""
    lib = library()
    mpi4py = sys.modules.get("mpi4py.MPI")
    if comm is not None:
        _require_communicator(comm, mpi4py)
    value, owned, thread, of_job = c_void_p(), False, None, None
    if mpi4py is not None and mpi4py.Is_initialized() and not mpi4py.Is_finalized():
        comm = mpi4py.COMM_WORLD if comm is None else comm
        _require_same_mpi(mpi4py)
        thread, of_job = _thread_of(mpi4py), mpi4py.COMM_WORLD.Get_rank()
        lib.ml_group_open(c_void_p(mpi4py._addressof(comm)), byref(value))
    elif comm is not None:
        raise MpiError("comm is given, but MPI does not run; mpi4py starts it by MPI.Init(), and by itself unless "
                       "mpi4py.rc.initialize is False")
    else:
        if not lib.ml_mpi_running():
            lib.ml_mpi_start()
            owned = True
        lib.ml_group_world(byref(value))
    return Ranks(Handle("mesh", value.value, "ml_group_close"), owned, thread, of_job)


def _require_communicator(comm: Any, mpi4py: Optional[Any]) -> None:
    if mpi4py is None or not isinstance(comm, mpi4py.Comm):
        raise TypeError(f"comm is {comm!r:.80}, a {type(comm).__name__}; expected a communicator of mpi4py, as "
                        "MPI.COMM_WORLD, or None for all ranks of the job")
    if not isinstance(comm, mpi4py.Intracomm) or comm == mpi4py.COMM_NULL:
        found = "MPI.COMM_NULL" if comm == mpi4py.COMM_NULL else "an intercommunicator"
        raise ConfigError(f"comm is {found}; expected the communicator of this rank and those that share the experts "
                          "with it")


def library_text() -> str:
    """How the library's MPI calls itself."""
    text = create_string_buffer(16384)
    library().ml_machine(text, len(text))
    return _plain(json.loads(text.value)["mpi"])


def _plain(text: str) -> str:
    return " ".join(text.replace("\0", " ").split())


def _require_same_mpi(mpi4py: Any) -> None:
    """Another MPI's handles mean nothing to the library's: they are not even looked at."""
    ours, theirs = library_text(), _plain(mpi4py.Get_library_version())
    way_out = ("set MPI4PY_MPIABI (mpi4py 4.1 of pip: \"openmpi\" or \"mpich\") for the library's MPI, or install "
               "mpi4py for it: Debian's python3-mpi4py, or `pip install --no-binary mpi4py mpi4py` with its mpicc in "
               "PATH; or do not import mpi4py.MPI before moeloom.mesh()")
    if ours != theirs:
        raise MpiError(f"mpi4py has started another MPI than the library uses: mpi4py has \"{theirs}\", "
                       f"{library().path} has \"{ours}\"; {way_out}")
    if not library().ml_mpi_running():
        raise MpiError(f"mpi4py has started MPI in another copy of \"{ours}\" than {library().path} uses; {way_out}")


def _thread_of(mpi4py: Any) -> Optional[int]:
    """The only one that may call MPI; None: any, by turns."""
    level = mpi4py.Query_thread()
    way_out = "set mpi4py.rc.thread_level = \"serialized\" before mpi4py.MPI is imported, or leave it as it is"
    if level < mpi4py.THREAD_FUNNELED:
        raise MpiError("mpi4py has started MPI at MPI_THREAD_SINGLE, and the library needs MPI_THREAD_FUNNELED or "
                       f"more; {way_out}")
    if level >= mpi4py.THREAD_SERIALIZED:
        return None
    if not mpi4py.Is_thread_main():
        raise MpiError(f"mpi4py has started MPI at MPI_THREAD_FUNNELED, for its main thread alone, and this is "
                       f"{threading.current_thread().name}; {way_out}")
    return threading.get_ident()
