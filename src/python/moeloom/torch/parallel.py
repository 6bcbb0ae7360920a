"""Training on the ranks of a mesh: every rank its own batches, one gradient, one norm.

    for batch in shard_batches(loader, mesh):
        model(**batch).loss.backward()
        norm = finish_gradients(model, mesh, max_norm=1.0)
        optimizer.step(); optimizer.zero_grad()
"""

from __future__ import annotations

import numbers
from typing import Any, Iterable, Iterator, Optional, Tuple, TypeVar

from torch import nn

from ..errors import ConfigError, ShapeError
from ._gradients import Gradients
from ._files import unwrapped
from ._same_start import require_the_same_start
from ._shares import mesh_for

LOSSES = ("mean", "sum")
Batch = TypeVar("Batch")


def finish_gradients(model: nn.Module, mesh: Any = None, max_norm: Optional[float] = None,
                     loss: str = "mean") -> float:
    """After the last backward of a step: `param.grad` becomes the gradient of all ranks' loss -> its norm.

    Dense parameters are summed over all ranks, experts over the ranks that hold the same ones. loss "mean": each rank's
    loss is a mean over its tokens, and ranks weigh the same, as under DDP; "sum": each rank's is a sum. max_norm: the
    gradient is clipped to it as torch.nn.utils.clip_grad_norm_ does; the norm is that before. Every rank calls it, the
    norm is the same bits on all. mesh None: that of the model's experts, or one process. A DDP model's dense gradients
    are averaged already. Raises ConfigError where ranks train different parameters, or begin with other values of the
    same ones.
    """
    if loss not in LOSSES:
        raise ConfigError(f'unknown loss "{loss}"; known: {", ".join(LOSSES)}')
    require_max_norm(max_norm)
    mesh = mesh_for(unwrapped(model), mesh)
    gradients = Gradients(model, mesh)
    gradients.add_up()
    require_the_same_start(unwrapped(model), mesh)
    factors = {id(each.parameter): gradients.factor(each, loss) for each in (*gradients.dense, *gradients.experts)}
    norm = gradients.norm(factors)
    clipped = 1.0 if max_norm is None else min(1.0, float(max_norm) / (norm + 1e-6))
    gradients.multiply(factors, clipped if norm == norm else norm)
    return norm


def require_max_norm(max_norm: Any) -> None:
    if max_norm is not None and not (isinstance(max_norm, numbers.Real) and float(max_norm) >= 0):
        raise ConfigError(f"max_norm = {max_norm!r}: expected a number from 0 on, or None")


def shard_batches(batches: Iterable[Batch], mesh: Any) -> Iterator[Batch]:
    """Of batches that every rank has in the same order, each rank's own: the first to rank 0, the second to rank 1 ...

    Every rank iterates to the end. Batches that do not go round are a ShapeError on all, after the last whole round.
    """
    if mesh is None or mesh.size == 1:
        yield from batches
        return
    source = iter(batches)
    number = 0
    while True:
        mine, came = _round(source, mesh)
        mesh.world.enter("shard_batches")
        told = mesh.world.gather(f"{number + came}{' or more' if came == mesh.size else ''}")
        if len(set(told)) > 1:
            counts = ", ".join(f"rank {rank} has {count}" for rank, count in enumerate(told))
            raise ShapeError(f"ranks have different numbers of batches: {counts}; every rank iterates the same ones")
        if came < mesh.size:
            break
        number += came
        yield mine  # type: ignore[misc]
    if came:
        raise ShapeError(f"{number + came} batches do not divide among {mesh.size} ranks: {came} left over; drop or "
                         "add some")


def _round(source: Iterator[Batch], mesh: Any) -> Tuple[Optional[Batch], int]:
    """The batch of this rank, and how many of the round came."""
    mine, came = None, 0
    for place in range(mesh.size):
        try:
            batch = next(source)
        except StopIteration:
            break
        came += 1
        if place == mesh.rank:
            mine = batch
    return mine, came
