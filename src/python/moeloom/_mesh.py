"""Ranks of a job as a mesh: dp columns of ep rows, an ep row being neighbours that share the experts."""

from __future__ import annotations

from ctypes import byref, c_void_p
from typing import Any, Dict, Tuple

from . import _words
from ._group import Group
from ._library import Handle, library


def mesh(ep: int = 1, comm: Any = None, timeout: float = 600.0) -> Mesh:
    """Ranks of the job, ep of which share experts; every rank calls it with the same ep.

    Starts MPI, or takes mpi4py's communicator: comm, or COMM_WORLD where mpi4py has started MPI. timeout: seconds that
    one wait for other ranks may last.
    """
    lib = library()
    if not lib.ml_mpi_running():
        lib.ml_mpi_start()
    value = c_void_p()
    lib.ml_group_world(byref(value))
    return Mesh(Group(Handle("group", value.value, "ml_group_close")), _words.whole(ep, "ep"))


class Mesh:
    """`world`, `ep_row` and `dp_column` are its groups. A context manager that closes itself."""

    def __init__(self, world: Group, ep: int) -> None:
        self.world = world
        self.ep_row, self.dp_column = world.mesh(ep)
        self.rank, self.size = world.rank, world.size
        self.ep, self.ep_rank = self.ep_row.size, self.ep_row.rank
        self.dp, self.dp_rank = self.dp_column.size, self.dp_column.rank

    def barrier(self) -> None:
        self.world.barrier()

    def experts_of(self, num_experts: int) -> Tuple[int, int]:
        """Those that this rank holds: the first, and how many."""
        return self.ep_row.experts_of(num_experts)

    def close(self) -> None:
        for group in (self.dp_column, self.ep_row, self.world):
            group.close()

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __copy__(self) -> Mesh:
        return self

    def __deepcopy__(self, memo: Dict[int, Any]) -> Mesh:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a mesh belongs to this process and its ranks, and cannot be pickled; save a model by "
                        "moeloom.torch.save_pretrained or save_checkpoint")

    def __repr__(self) -> str:
        return f"Mesh(rank {self.rank} of {self.size}, ep {self.ep_rank} of {self.ep}, dp {self.dp_rank} of {self.dp})"
