"""Parameters that several ranks have are the same on all of them in the first step, as their gradients are later."""

from __future__ import annotations

import zlib
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import nn

from ..errors import ConfigError
from ._shares import placed

_MARK = "_moeloom_same_start"


class Difference(NamedTuple):
    name: str
    rank: int
    other: int


def require_the_same_start(model: nn.Module, mesh: Any) -> None:
    """ConfigError on every rank where a parameter, trained or frozen, has other values than on another rank that has it
    too. Once for each model; reads every byte of it. Collective over the world."""
    if mesh is None or mesh.size == 1 or _MARK in model.__dict__:
        return
    where = placed(model)
    here = f"ep={mesh.ep_rank}"
    sums = [(here if name in where else "all", name, _sum(parameter)) for name, parameter in model.named_parameters()]
    summary = [f"{of} {zlib.crc32(repr([each for each in sums if each[0] == of]).encode())}" for of in ("all", here)]
    if _first_difference(mesh.world.gather("\n".join(summary))):
        differs = _first_difference(mesh.world.gather("\n".join(f"{of} {name} {value}" for of, name, value in sums)))
        if differs:
            raise ConfigError(
                f"{differs.name} has other values on rank {differs.other} than on rank {differs.rank} in the first "
                "step; make the model with the same seed on every rank, and adapters before experts are shared, or "
                "right after the same torch.manual_seed(...); or moeloom.torch.load_checkpoint gives all the same")
    model.__dict__[_MARK] = True


def _first_difference(told: List[str]) -> Optional[Difference]:
    """Of lines "ranks name value" of every rank."""
    seen: Dict[str, Tuple[int, str]] = {}
    for rank, text in enumerate(told):
        for line in text.splitlines():
            key, _, value = line.rpartition(" ")
            before, standing = seen.setdefault(key, (rank, value))
            if standing != value:
                return Difference(key.partition(" ")[2], before, rank)
    return None


def _sum(parameter: torch.Tensor) -> int:
    values: Any = parameter.detach().cpu().contiguous().reshape(-1)
    return zlib.crc32(values.view(torch.uint8).numpy()) if values.numel() else 0
