"""Ranks that share a layer's experts, and the experts that were opened on them.

One process has one group of its own, `alone()`: all layers share its buffers. A mesh has one for its row of ep.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from ctypes import POINTER, byref, c_int64, c_void_p, create_string_buffer, pointer
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _words
from ._endings import told_to_all
from ._exchange import NOTHING_ASKED, asked_exchange
from ._library import Handle, library
from ._passes import Passes
from ._stacks import Stacks, Target, grads_of, weights_of
from ._table import Array, ExpertsSettings, GluSettings
from ._watch import Watch
from .errors import Error, MpiError, SpentError

_groups: weakref.WeakSet[Group] = weakref.WeakSet()


def _unlock() -> None:
    """After a fork no thread is left that would release a lock, as another held it then."""
    for group in _groups:
        group.lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock)


class Group:
    """A group of the library, and a layer's experts on it by what they were asked to be.

    Threads of one process take turns. Over ranks they must not meet here: their order would differ from rank to rank.
    """

    def __init__(self, handle: Handle, of: Optional[Group] = None) -> None:
        self.handle = handle
        self.outlives_close = False  # the handle, which the end of the program still needs
        self.thread: Optional[int] = None if of is None else of.thread  # the only one that may call MPI; None: any
        self.number: int = self.rank if of is None else of.number  # of the whole that was divided
        self._process = os.getpid()
        self.lock: threading.Lock = threading.Lock() if of is None else of.lock
        self.watch: Watch = Watch(0, print) if of is None else of.watch
        self._closed = self._released = False
        self._left: Sequence[Group] = ()
        self.passes = Passes()
        self._experts: Dict[Tuple[Any, ...], Experts] = {}
        _groups.add(self)

    def experts(self, num_experts: int, kind: str, layer: int = 0) -> Experts:
        """Collective in the first call with these."""
        num_experts, _ = _words.whole(num_experts, "num_experts"), _words.text(kind, "kind")
        key = (num_experts, kind, layer)
        found = self._experts.get(key)
        if found is None:
            found = self._experts[key] = Experts(self, *key)
        return found

    def travels(self, num_experts: int, layer: int) -> str:
        """How rows of the layer's last forward travelled, and why; "" where there was none. Not collective."""
        opened = (experts for key, experts in self._experts.items() if (key[0], key[2]) == (num_experts, layer))
        return next((experts.reason for experts in opened), "")

    @property
    def rank(self) -> int:
        return int(library().ml_group_rank(self.handle.value))

    @property
    def size(self) -> int:
        return int(library().ml_group_size(self.handle.value))

    @property
    def value(self) -> c_void_p:
        if self._closed:
            raise SpentError("the mesh is closed")
        return self.handle.value

    def call(self, what: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Of the library, collective over the group; `what` is where this rank is seen waiting."""
        if self.thread is not None and threading.get_ident() != self.thread:
            raise MpiError(f"{what} is called by {threading.current_thread().name}, and mpi4py has started MPI for the "
                           "main thread alone; set mpi4py.rc.thread_level = \"serialized\" before mpi4py.MPI is "
                           "imported")
        try:
            self._call_in_turn(what, function, *arguments)
        finally:
            self.close_left()

    def _call_in_turn(self, what: str, function: Callable[..., Any], *arguments: Any) -> None:
        with self.lock:
            if self._closed and not self.outlives_close:  # while this thread waited
                raise SpentError("the mesh is closed")
            self.watch.now = (what,)
            try:
                function(*arguments)
            except (Error, TypeError) as error:
                told_to_all(error, self.rank, self.number)
                raise
            finally:
                self.watch.now = None

    def mesh(self, ep: int) -> Tuple[Group, Group]:
        """This rank's ep row and dp column. Collective, as all below but `experts_of`."""
        row, column = c_void_p(), c_void_p()
        self.call(f"a mesh of ep = {ep}", library().ml_group_mesh, self.value, ep, byref(row), byref(column))
        return tuple(Group(Handle("mesh", each.value, "ml_group_close"), self)  # type: ignore[return-value]
                     for each in (row, column))

    def experts_of(self, num_experts: int) -> Tuple[int, int]:
        """Those that this rank of an ep row holds: the first, and how many."""
        begin, count = c_int64(), c_int64()
        library().ml_group_experts(self.value, num_experts, byref(begin), byref(count))
        return begin.value, count.value

    def sum(self, arrays: Sequence[Array], scale: float = 1.0, what: str = "a sum") -> None:
        """Each array becomes scale times its sum over ranks."""
        pointers = (POINTER(Array) * len(arrays))(*map(pointer, arrays))
        self.call(what, library().ml_group_sum, self.value, pointers, len(arrays), scale)

    def barrier(self) -> None:
        self.enter("a barrier")

    def agree(self, error: str = "", what: str = "agree") -> None:
        """Raises on every rank where any has an error."""
        self.enter(what, error)

    def enter(self, what: str, error: str = "") -> None:
        """A call of the program's own, `what` in the errors of ranks that are not in it; raises as agree does."""
        self.call(what, library().ml_group_enter, self.value, what.encode(), error.encode())

    def gather(self, text: str) -> List[str]:
        """A text of every rank."""
        self.call("a gathering of texts", library().ml_group_gather_text, self.value, text.encode())
        return [library().ml_group_text(self.value, rank).decode() for rank in range(self.size)]

    def leave(self, groups: Sequence[Group]) -> None:
        """A mesh of these groups closes, maybe while a call goes on; close_left() is next."""
        if not self._released:
            self._left, self._closed = groups, True

    def close_left(self) -> None:
        """By who left, and behind every call: where one has the lock, maybe of this thread, which the garbage collector
        cut into, it comes here later."""
        if self._left and self.lock.acquire(blocking=False):
            try:
                close_all(self._left)
            finally:
                self.lock.release()

    def close(self) -> None:
        """By who has the lock."""
        self._left, self._closed = (), True
        for experts in self._experts.values():
            experts.handle.close()
        self._experts.clear()
        if not self._released and os.getpid() == self._process:
            library().ml_group_release(self.handle.value)
        self._released = True
        if not self.outlives_close:
            self.handle.close()


def close_all(groups: Sequence[Group]) -> None:
    """Those of a mesh, by who has their lock."""
    for group in groups:
        group.watch.close()
        group.close()


@functools.lru_cache(maxsize=None)
def alone() -> Group:
    """This process by itself, for which MPI need not run."""
    value = c_void_p()
    library().ml_group_open(None, byref(value))
    return Group(Handle("group", value.value, "ml_group_close"))


def group_of(mesh: Any) -> Group:
    """The row of ranks that share a layer's experts; without a mesh this process."""
    if mesh is None:
        return alone()
    if not hasattr(mesh, "ep_row"):
        raise TypeError(f"mesh is a {type(mesh).__name__}; expected moeloom.mesh(...), or None for one process")
    row: Group = mesh.ep_row
    return row


class Experts:
    """Forward and backward of a layer's experts, collective over the group."""

    def __init__(self, group: Group, num_experts: int, kind: str, layer: int) -> None:
        glu = GluSettings(kind=kind.encode())
        dispatcher, chunks, pretended_nodes = asked_exchange() if group.size > 1 else NOTHING_ASKED
        settings = ExpertsSettings(num_experts=num_experts, layer=layer, glu=pointer(glu), chunks=chunks,
                                   dispatcher=dispatcher.encode() if dispatcher else None,
                                   pretended_nodes=pretended_nodes)
        value = c_void_p()
        group.call("the opening of a layer's experts", library().ml_experts_open, group.value, byref(settings),
                   byref(value))
        self.handle = Handle("mesh", value.value, "ml_experts_close")
        self._group = group
        self._forward, self._backward, self._dispatch, self._combine = (
            f"the {direction} of layer {layer}" for direction in ("forward", "backward", "dispatch", "combine"))

    @property
    def reason(self) -> str:
        """How rows of the last forward travelled, and why."""
        text = create_string_buffer(2048)
        library().ml_experts_reason(self.handle.value, text, len(text))
        return text.value.decode()

    def forward(self, stacks: Stacks, x: Array, topk_idx: Array, topk_weights: Array, y: Array,
                keeps_trip: bool) -> Optional[Handle]:
        """Writes y, and returns what the backward takes, if there is to be one."""
        value = c_void_p()
        self._group.call(self._forward, library().ml_experts_forward, self.handle.value, byref(weights_of(stacks)), x,
                         topk_idx, topk_weights, y, byref(value) if keeps_trip else None)
        self._group.passes.forwards += int(keeps_trip)  # not of a rank that was refused alone, and calls again
        return Handle("trip", value.value, "ml_trip_free") if keeps_trip else None

    def backward(self, stacks: Stacks, trip: Handle, dy: Array, dx: Optional[Array], d_topk_weights: Optional[Array],
                 targets: Dict[str, Optional[Target]]) -> None:
        self._group.call(self._backward, library().ml_experts_backward, self.handle.value, byref(weights_of(stacks)),
                         trip.value, dy, dx, d_topk_weights, byref(grads_of(targets)))
        self._group.passes.backwards += 1

    def plan(self, topk_idx: Array) -> Handle:
        """Where rows of these choices go: a trip for `dispatch` and `combine`, as often as wanted."""
        value = c_void_p()
        self._group.call(self._dispatch, library().ml_dispatch_plan, self.handle.value, topk_idx, byref(value))
        return Handle("trip", value.value, "ml_trip_free")

    def dispatch(self, trip: Handle, x: Array, slot_scalars: Optional[Array], rows: Array,
                 row_scalars: Optional[Array]) -> None:
        self._group.call(self._dispatch, library().ml_dispatch, self.handle.value, trip.value, x, slot_scalars, rows,
                         row_scalars)

    def combine(self, trip: Handle, rows: Array, row_weights: Optional[Array], row_scalars: Optional[Array], y: Array,
                slot_scalars: Optional[Array]) -> None:
        self._group.call(self._combine, library().ml_combine, self.handle.value, trip.value, rows, row_weights,
                         row_scalars, y, slot_scalars)
