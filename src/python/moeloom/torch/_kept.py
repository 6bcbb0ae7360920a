"""Where the gradient of an expert stack goes: into memory that lives with the layer, or to autograd.

Fresh memory for the gradient of 128 experts costs more than computing it. So backward writes it into one buffer that
is used again at every step, `param.grad` refers to it, and autograd is told that there is none. Where `param.grad`
holds something already it is added there.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch

from .._stacks import Target
from ._tensors import view

# What the library writes gradients in, and those that it writes in float32 whatever the weight is.
_WRITABLE = (torch.float32, torch.bfloat16)
IN_FLOAT32 = ("gate_up_bias", "down_bias")
# Whether this backward comes to a node, which torch.autograd.grad() may have left out.
_will_execute: Any = getattr(torch._C, "_will_engine_execute_node", None)  # type: ignore[attr-defined]


class Destination:
    """Of one weight in one backward; `target` for the library, then `result` for autograd."""

    def __init__(self, weight: torch.Tensor, name: str, parameter: Optional[torch.Tensor],
                 buffers: Optional[Dict[str, torch.Tensor]], node: Any) -> None:
        """parameter: the leaf that has the gradient, if it is one. buffers: the layer's kept ones, None: autograd has
        the gradient. node: where autograd would take it."""
        self._weight, self._name, self._parameter = weight, name, parameter
        self._dtype = torch.float32 if name in IN_FLOAT32 or weight.dtype not in _WRITABLE else weight.dtype
        self._buffers = None if parameter is None else buffers
        self._skipped = False
        if self._buffers is not None and _will_execute is not None and node is not None:
            self._ask(node)
        self._written, self._adds = self._choose()

    def _ask(self, node: Any) -> None:
        try:
            self._skipped = not _will_execute(node)
        except RuntimeError:  # torch.autograd.grad() asks for this very weight's gradient, as a result
            self._buffers = None

    def _choose(self) -> Tuple[Optional[torch.Tensor], bool]:
        """The tensor that the library writes, and whether it adds to it."""
        if self._skipped:
            return None, False
        if self._parameter is not None and self._buffers is not None and self._dtype == self._weight.dtype:
            grad = self._parameter.grad
            if grad is None:
                return self._buffer(self._buffers), False
            if grad.is_contiguous() and not grad.is_neg():
                return grad, True
        return torch.empty(self._weight.shape, dtype=self._dtype), False

    def _buffer(self, buffers: Dict[str, torch.Tensor]) -> torch.Tensor:
        kept = buffers.get(self._name)
        if kept is None or kept.shape != self._weight.shape or kept.dtype != self._weight.dtype:
            kept = buffers[self._name] = torch.empty(self._weight.shape, dtype=self._weight.dtype)
        return kept

    @property
    def target(self) -> Optional[Target]:
        return None if self._written is None else Target(view(self._written, self._name), self._adds)

    def result(self) -> Optional[torch.Tensor]:
        """What backward returns; the kept gradient is `param.grad` from here on."""
        if self._written is None or self._adds:
            return None
        grad: torch.Tensor = self._written.to(self._weight.dtype)
        if self._parameter is None or self._buffers is None:
            return grad
        if self._parameter.grad is None:
            self._parameter.grad = grad
        else:
            self._parameter.grad.add_(grad)
        return None
