"""A layer's stacks of weights, and where their gradients go, as the library takes them."""

from __future__ import annotations

from ctypes import pointer
from typing import Any, Dict, NamedTuple, Optional

from ._table import ADD, REPLACE, Array, ExpertGrads, ExpertWeights


class Stacks(NamedTuple):
    """Arrays of a layer's experts: gate_up [e, 2F, D], down [e, D, F], and where there are any both biases."""

    gate_up: Array
    down: Array
    gate_up_bias: Optional[Array] = None
    down_bias: Optional[Array] = None


class Target(NamedTuple):
    """Where a gradient goes, and whether it is added to what is there."""

    array: Array
    adds: bool = False


def _pointer(array: Optional[Array]) -> Any:
    return None if array is None else pointer(array)


def weights_of(stacks: Stacks) -> ExpertWeights:
    return ExpertWeights(**{name: _pointer(array) for name, array in stacks._asdict().items()})


def grads_of(targets: Dict[str, Optional[Target]]) -> ExpertGrads:
    """None, or no word of it: frozen."""
    grads = ExpertGrads()
    for name, target in targets.items():
        if target is not None:
            setattr(grads, name, pointer(target.array))
            setattr(grads, f"{name}_mode", ADD if target.adds else REPLACE)
    return grads
