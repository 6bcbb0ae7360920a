"""Gradients of a model over the ranks of a mesh: who adds up what, and whose squares count where in the norm."""

from __future__ import annotations

import math
import zlib
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .._library import library
from ..errors import ConfigError
from ._guards import refuse_adapters
from ._shares import placed, shares
from ._tensors import plain, view


class Trained(NamedTuple):
    """A parameter that is trained. slots: of the norm, one for each expert of a stack."""

    name: str
    parameter: nn.Parameter
    slots: range


class Gradients:
    """Of one model. `dense` are the same parameters on every rank of the world, `experts` on those of a dp column."""

    def __init__(self, model: nn.Module, mesh: Any) -> None:
        self._mesh = mesh
        self._averaged = _averaged_by_ddp(model)
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        self.dense, self.experts, self._slots = _trained(inner)
        self._refuse_parts(inner)

    def _refuse_parts(self, model: nn.Module) -> None:
        """ConfigError where this rank's part of the experts is taken for all of them, by DDP or by an adapter."""
        if self._mesh is None or self._mesh.ep == 1:
            return
        refuse_adapters(name for name, _, _ in shares(model))
        if any(id(each.parameter) in self._averaged for each in self.experts):
            raise ConfigError("DistributedDataParallel averages gradients of experts that ranks share; share them, by "
                              "apply_kernel or shard, before DistributedDataParallel(model), which then leaves them "
                              "alone")

    @property
    def _size(self) -> int:
        return 1 if self._mesh is None else int(self._mesh.size)

    def add_up(self) -> None:
        """Sums over ranks, of those that no DDP has averaged. Collective over the world."""
        dense = [each for each in self.dense if id(each.parameter) not in self._averaged]
        if self._size > 1:
            self._mesh.world.enter("finish_gradients")
            passes = self._mesh.ep_row.passes.taken()
            _require_the_same(self._mesh.world, dense, "%s forwards and %s backwards" % passes)
            _sum(self._mesh.world, dense)
            experts = [each for each in self.experts if id(each.parameter) not in self._averaged]
            if self._mesh.dp > 1:
                _require_the_same(self._mesh.dp_column, experts)
                _sum(self._mesh.dp_column, experts)

    def factor(self, each: Trained, loss: str) -> float:
        """What its sum over ranks is multiplied by, to be the gradient of the loss."""
        if id(each.parameter) in self._averaged:
            return 1.0 if loss == "mean" else float(self._size)
        return 1.0 / self._size if loss == "mean" else 1.0

    def norm(self, factors: Dict[int, float]) -> float:
        """Of all gradients, each times its factor by the parameter's id. Every parameter counts once: one of several
        ranks that have it adds up its squares. The same bits on every rank. Collective over the world."""
        squares = torch.zeros(max(self._slots, 1), dtype=torch.float64)
        for place, each in enumerate(self.dense):
            if self._mesh is None or place % self._size == self._mesh.rank:
                _add_squares(each, squares, factors)
        for each in self.experts:
            if self._mesh is None or self._mesh.dp_rank == 0:
                _add_squares(each, squares, factors)
        if self._size > 1:
            self._mesh.world.sum([view(squares)])
        return math.sqrt(math.fsum(squares.tolist())) if bool(torch.isfinite(squares).all()) else float(squares.sum())

    def multiply(self, factors: Dict[int, float], more: float) -> None:
        by_factor: Dict[float, List[torch.Tensor]] = {}
        for each in (*self.dense, *self.experts):
            grad = each.parameter.grad
            if grad is not None and factors[id(each.parameter)] * more != 1.0:
                by_factor.setdefault(factors[id(each.parameter)] * more, []).append(grad)
        for factor, grads in by_factor.items():
            torch._foreach_mul_(grads, factor)


def _averaged_by_ddp(model: nn.Module) -> frozenset[int]:
    """Ids of parameters whose gradients DDP averages in backward: all but those that it was told to ignore."""
    if not isinstance(model, DistributedDataParallel):
        return frozenset()
    ignored = model.parameters_to_ignore
    return frozenset(id(parameter) for name, parameter in model.module.named_parameters() if name not in ignored)


def _trained(model: nn.Module) -> Tuple[List[Trained], List[Trained], int]:
    """Dense ones, those of experts, and how many slots the norm has, which is the same on every rank."""
    where = placed(model)
    dense: List[Trained] = []
    experts: List[Trained] = []
    slots = 0
    listed: Dict[str, int] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        place = where.get(name)
        if place is None:
            dense.append(Trained(name, parameter, range(slots, slots + 1)))
            slots += 1
            continue
        # Of a list, what one expert has under a name the others have too: E slots in a row.
        key = name if place.stacked else place.of_expert(0)
        begin = listed.setdefault(key, slots)
        slots = max(slots, begin + place.share.num_experts)
        here = range(begin + place.share.begin, begin + place.share.begin + place.share.count)
        experts.append(Trained(name, parameter, here if place.stacked else
                               range(begin + place.number, begin + place.number + 1)))
    return dense, experts, slots


def _add_squares(each: Trained, squares: torch.Tensor, factors: Dict[int, float]) -> None:
    grad = each.parameter.grad
    if grad is None or not grad.numel():
        return
    rows = plain(grad.detach()).reshape(len(each.slots), -1)
    sums = torch.empty(len(each.slots), dtype=torch.float64)
    library().ml_squares(view(rows), view(sums))
    squares[each.slots.start:each.slots.stop] = sums * factors[id(each.parameter)] ** 2


def _sum(group: Any, trained: Sequence[Trained]) -> None:
    """Gradients over ranks. What has one on some rank has one on all: zeros where none was computed."""
    has = torch.tensor([float(each.parameter.grad is not None) for each in trained])
    group.sum([view(has)])
    summed = [each.parameter for each, count in zip(trained, has.tolist()) if count]
    for parameter in summed:
        parameter.grad = _dense(parameter)
    if summed:
        group.sum([view(parameter.grad.view(-1), "a gradient") for parameter in summed if parameter.grad is not None])


def _require_the_same(group: Any, trained: Sequence[Trained], passes: str = "") -> None:
    """ConfigError on every rank where they train other parameters, or went through experts another number of times."""
    known = repr([(each.name, str(each.parameter.dtype), tuple(each.parameter.shape)) for each in trained])
    told = group.gather(f"{len(trained)} parameters, {zlib.crc32(known.encode()):08x} by names, dtypes and shapes\n"
                        + passes)
    parameters, counts = zip(*(text.split("\n") for text in told))
    if len(set(counts)) > 1:
        raise ConfigError(f"ranks do not make as many passes: {_by_rank(counts)} of experts since finish_gradients "
                          "was called last; every rank makes as many forwards, backwards and batches")
    if len(set(parameters)) > 1:
        raise ConfigError(f"ranks train different parameters: {_by_rank(parameters)}; every rank makes the same model "
                          "and freezes the same of it")


def _by_rank(texts: Sequence[str]) -> str:
    """"rank 1: 3 parameters, ranks 0,2: 2 parameters"."""
    ranks: Dict[str, List[int]] = {}
    for rank, text in enumerate(texts):
        ranks.setdefault(text, []).append(rank)
    return ", ".join(f"rank{'s' if len(those) > 1 else ''} {','.join(map(str, those))}: {text}"
                     for text, those in ranks.items())


def _dense(parameter: nn.Parameter) -> torch.Tensor:
    """The gradient as the library sums it where it lies."""
    grad: Optional[torch.Tensor] = parameter.grad
    if grad is None:
        return torch.zeros_like(parameter)
    if grad.is_sparse:
        raise TypeError("a gradient is sparse; expected dense ones, as nn.Embedding(sparse=False) has")
    grad = plain(grad.detach())
    return grad.contiguous()
