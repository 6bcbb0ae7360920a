"""Tensors as the library takes them."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from .._table import Array
from ..arrays import of_tensor, require_dims
from ..errors import ShapeError


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers as they lie in memory: a view of negated or conjugated ones is written out."""
    return tensor.resolve_neg().resolve_conj() if tensor.is_neg() or tensor.is_conj() else tensor


def require_tensor(tensor: Any, name: str) -> None:
    """A TypeError that names what torch's own functions would fail on without a name."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
    if tensor.layout is not torch.strided or tensor.is_nested:
        layout = "nested" if tensor.is_nested else tensor.layout
        raise TypeError(f"{name} has layout {layout}; expected torch.strided, as {name}.to_dense() has")
    if not tensor.is_cpu:
        raise TypeError(f"{name} is on {tensor.device}; expected a tensor of the CPU, as {name}.cpu() is")


def given(tensor: Any, name: str, letters: Optional[Sequence[str]] = None) -> torch.Tensor:
    """The tensor itself, or a copy where its last stride is not 1, as of a gradient that was expanded."""
    require_tensor(tensor, name)
    if letters is not None:
        require_dims(tensor, letters, name)
    tensor = plain(tensor)
    if tensor.dim() and tensor.stride(-1) != 1 and tensor.size(-1) > 1:
        return tensor.contiguous()
    return tensor


def indices(values: Any, name: str, letters: Sequence[str]) -> torch.Tensor:
    """Numbers of experts or rows: a tensor of int64 or int32, or a list."""
    try:
        tensor = values if isinstance(values, torch.Tensor) else torch.as_tensor(values)
    except (RuntimeError, TypeError, ValueError):
        raise TypeError(f"{name} is {values!r:.80}, a {type(values).__name__}; expected a torch.Tensor") from None
    if tensor.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} has dtype {tensor.dtype}; expected torch.int64 or torch.int32")
    return given(tensor, name, letters)


def view(tensor: torch.Tensor, name: str = "a result") -> Array:
    return of_tensor(plain(tensor), name)


def maybe(tensor: Optional[torch.Tensor], name: str = "a result") -> Optional[Array]:
    return None if tensor is None else view(tensor, name)


def flat(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """[..., D] -> [rows, D], without a copy where the rows have one distance."""
    require_tensor(tensor, name)
    if not tensor.dim():
        raise ShapeError(f"{name} has no dimension; expected at least one")
    return given(tensor.flatten(0, -2) if tensor.dim() > 1 else tensor[None], name)
