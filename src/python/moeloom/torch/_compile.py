"""What torch.compile does not look into: it would trace Python down to ctypes, and break its graph there."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, List

import torch


def outside_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which runs as it is in a graph's break. Who does not compile does not import the compiler."""
    disable = getattr(getattr(torch, "compiler", None), "disable", None)
    if disable is None:
        return function
    ready: List[Callable[..., Any]] = []

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*arguments, **named)
        if not ready:
            ready.append(disable(function))
        return ready[0](*arguments, **named)
    return call


class Function(torch.autograd.Function):
    """One whose forward and backward the compiler does not trace."""

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        return _apply(super().apply, *arguments)


@outside_graphs
def _apply(apply: Callable[..., Any], *arguments: Any) -> Any:
    return apply(*arguments)
