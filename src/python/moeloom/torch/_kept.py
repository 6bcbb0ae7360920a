"""Where the gradient of an expert stack goes: into memory that lives with the layer, or to autograd.

Fresh memory for the gradient of 128 experts costs more than computing it. So backward writes it into one buffer that
is used again at every step, `param.grad` refers to it, and autograd is told that there is none. Where `param.grad`
holds something already it is added there.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch

from .._group import Target
from ._tensors import view

# What the library writes gradients in.
_WRITABLE = (torch.float32, torch.bfloat16)
# Of torch 2: whether this backward comes to a node, which torch.autograd.grad() may have left out.
_will_execute = getattr(torch._C, "_will_engine_execute_node", None)


class Destination:
    """Of one weight in one backward; `target` for the library, then `result` for autograd."""

    def __init__(self, weight: torch.Tensor, name: str, buffers: Optional[Dict[str, torch.Tensor]], node: Any) -> None:
        """buffers: the layer's kept ones, None: autograd has the gradient. node: where autograd would take it."""
        self._weight, self._name = weight, name
        self._buffers = None if buffers is None or not weight.is_leaf else buffers
        self._skipped = False
        if self._buffers is not None and _will_execute is not None and node is not None:
            self._ask(node)
        self._written, self._adds = self._choose()

    def _ask(self, node: Any) -> None:
        try:
            self._skipped = not _will_execute(node)
        except RuntimeError:  # torch.autograd.grad() asks for this very weight's gradient, as a result
            self._buffers = None

    def _choose(self) -> Any:
        """The tensor that the library writes, and whether it adds to it."""
        if self._skipped:
            return None, False
        dtype = self._weight.dtype if self._weight.dtype in _WRITABLE else torch.float32
        if self._buffers is None or dtype != self._weight.dtype:
            return torch.empty(self._weight.shape, dtype=dtype), False
        if self._weight.grad is None:
            return self._buffer(), False
        if self._weight.grad.is_contiguous():
            return self._weight.grad, True
        return torch.empty(self._weight.shape, dtype=dtype), False

    def _buffer(self) -> torch.Tensor:
        kept = self._buffers.get(self._name)
        if kept is None or kept.shape != self._weight.shape or kept.dtype != self._weight.dtype:
            kept = self._buffers[self._name] = torch.empty(self._weight.shape, dtype=self._weight.dtype)
        return kept

    @property
    def target(self) -> Optional[Target]:
        return None if self._written is None else Target(view(self._written, self._name), self._adds)

    def result(self) -> Optional[torch.Tensor]:
        """What backward returns; the kept gradient is `param.grad` from here on."""
        if self._buffers is None and self._written is not None:
            return self._written.to(self._weight.dtype)
        if self._written is not None and not self._adds:
            self._keep(self._written.to(self._weight.dtype))
        return None

    def _keep(self, grad: torch.Tensor) -> None:
        if self._weight.grad is None:
            self._weight.grad = grad
        else:
            self._weight.grad.add_(grad)
