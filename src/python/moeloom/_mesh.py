"""Ranks of a job as a mesh: dp columns of ep rows, an ep row being neighbours that share the experts."""

from __future__ import annotations

import itertools
import sys
import weakref
from typing import Any, Dict, List, Tuple

from . import _leftovers, _words
from ._endings import job
from ._group import Group, close_all
from ._library import library
from ._mpi import launched, ranks_of
from ._watch import Watch
from .errors import ConfigError, InUseError


def mesh(ep: int = 1, comm: Any = None, timeout: float = 600.0) -> Mesh:
    """Ranks of the job, ep of which share experts; every rank calls it with the same ep.

    Starts MPI, or takes mpi4py's communicator: comm, or COMM_WORLD where mpi4py has started MPI. MpiError where its MPI
    is not the library's, or was started for one thread; ConfigError on all ranks where ep does not divide them.

    timeout: seconds that a rank waits for others in one call, 0 for ever. Then it gets an MpiError that says in which
    layer and direction, and for whom. While a mesh of several ranks is open, an exception that nobody catches ends the
    job, and so does a call that ranks do not make alike.
    """
    _refuse_a_child()
    job().hear_of_others()
    ep, timeout = _words.whole(ep, "ep"), _words.number(timeout, "timeout")
    if not timeout >= 0:
        raise ConfigError(f"timeout is {timeout}; expected seconds, or 0 for a wait without end")
    watch = Watch(timeout, job().give_up)
    watch.now = "the making of a mesh", "of which one did not come to it"
    try:
        ranks = ranks_of(comm)
    except BaseException:
        watch.close()
        raise
    world = Group(ranks.handle)
    world.thread, world.watch = ranks.thread, watch
    if ranks.owned:
        job().owns_mpi()
    job().enter(world, ranks.of_job)
    try:
        _leftovers.watch()
        return Mesh(world, ep, timeout)
    except BaseException:
        job().leave(world)
        _close(world)
        raise


def _refuse_a_child() -> None:
    """A process that multiprocessing started has the launcher's variables of its parent, and is no rank."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None or not launched():
        return
    # The parent is known after the program's file has been run, which multiprocessing's own check is for.
    is_child = multiprocessing.parent_process() or getattr(multiprocessing.current_process(), "_inheriting", False)
    if is_child and not library().ml_mpi_running():
        raise ConfigError("moeloom.mesh() in a process that multiprocessing started, which is no rank of the job; it "
                          "runs the program's file again: put what ranks do below `if __name__ == \"__main__\":`")


def _close(*groups: Group) -> None:
    """Now, or behind the call that goes on."""
    for group in groups:
        group.leave(groups)
    groups[0].close_left()


def _dropped(world: Group, *parts: Group) -> None:
    job().leave(world)
    _close(world, *parts)


class Mesh:
    """`world`, `ep_row` and `dp_column` are its groups. A context manager that closes itself."""

    def __init__(self, world: Group, ep: int, timeout: float) -> None:
        self.world = world
        if world.size > 1:
            library().ml_group_set_timeout(world.handle.value, timeout)
        else:
            world.watch.close()
            world.watch = Watch(0, print)
        self._layers = itertools.count()
        self.rank, self.size = world.rank, world.size
        self.ep_row, self.dp_column = world.mesh(ep)
        self.ep, self.ep_rank = self.ep_row.size, self.ep_row.rank
        self.dp, self.dp_rank = self.dp_column.size, self.dp_column.rank
        self._drop = weakref.finalize(self, _dropped, world, self.ep_row, self.dp_column)
        self._drop.atexit = False

    def barrier(self) -> None:
        """Collective over all ranks. MpiError where one does not come, or is in another call."""
        self.world.barrier()

    def gather(self, text: str) -> List[str]:
        """A text of every rank, on every rank. Collective over all ranks."""
        return self.world.gather(text)

    def experts_of(self, num_experts: int) -> Tuple[int, int]:
        """Those that this rank holds: the first, and how many."""
        return self.ep_row.experts_of(num_experts)

    def next_layer(self) -> int:
        """The number of a layer that has none of its own: of ranks that make the same layers the same one."""
        return next(self._layers)

    def close(self) -> None:
        """Gives its buffers back, those that ranks share with the next call on any mesh, as its end does when nobody
        holds it; what is called on it afterwards is a SpentError. Not collective. InUseError while another thread is in
        a call."""
        if not self._drop.alive:
            return
        if not self.world.lock.acquire(blocking=False):
            raise InUseError("the mesh is used by another thread; close it when its call has returned")
        try:
            if self._drop.detach() is not None:
                job().leave(self.world)
                close_all((self.world, self.ep_row, self.dp_column))
        finally:
            self.world.lock.release()
            self.world.close_left()

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """After an exception other than SystemExit the job still ends by it, unless somebody catches it."""
        if kind is None or issubclass(kind, SystemExit):
            self.close()
        elif self._drop.detach() is not None:
            _close(self.world, self.ep_row, self.dp_column)

    def __copy__(self) -> Mesh:
        return self

    def __deepcopy__(self, memo: Dict[int, Any]) -> Mesh:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a mesh belongs to this process and its ranks, and cannot be pickled; save a model by "
                        "moeloom.torch.save_pretrained or save_checkpoint")

    def __repr__(self) -> str:
        return f"Mesh(rank {self.rank} of {self.size}, ep {self.ep_rank} of {self.ep}, dp {self.dp_rank} of {self.dp})"
