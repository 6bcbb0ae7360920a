"""Patches of norms and MLPs: what stands in place of their forward."""

from __future__ import annotations

from typing import Any, Tuple

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ._linears import is_plain
from ._lists import Projections
from ._patch import Patch, is_ours
from .functions import RMSNormFunction, SwigluFunction


class Norm(Patch):
    """x / rms(x) * (offset + weight)."""

    kernel = "fused_rmsnorm"
    reason = "one pass forward, one backward"

    def __init__(self, module: nn.Module, offset: float = 0.0) -> None:
        super().__init__(module)
        self._offset = offset
        self.settings = (offset,)

    def __call__(self, hidden_states: torch.Tensor) -> torch.Tensor:
        module = self.module
        # Of two dtypes Hugging Face's plain norm returns the wider one.
        if not is_ours(hidden_states) or hidden_states.dtype != module.weight.dtype and not self._offset:
            return self.original(hidden_states)
        return RMSNormFunction.apply(hidden_states, module.weight, _eps(module), self._offset)


class BareNorm(Norm):
    """x / rms(x), of a class that has a weight elsewhere."""

    def __call__(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if not is_ours(hidden_states):
            return self.original(hidden_states)
        ones = hidden_states.new_ones(hidden_states.size(-1))
        return RMSNormFunction.apply(hidden_states, ones, _eps(self.module))


class GatedNorm(Norm):
    """The same, times silu(gate)."""

    def __call__(self, hidden_states: torch.Tensor, gate: Any = None) -> torch.Tensor:
        if gate is None or gate.shape != hidden_states.shape or not is_ours(hidden_states):
            return self.original(hidden_states, gate)
        return RMSNormFunction.apply(hidden_states, self.module.weight, _eps(self.module), 0.0, gate)


def _eps(module: Any) -> float:
    return module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps


class _GateAndUp(Function):
    """apply(x [..., D], gate [F, D], up [F, D]) -> [..., 2F]: both products into one tensor, which no cat copies."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        rows, width = x.reshape(-1, x.size(-1)), gate.size(0)
        y = rows.new_empty(rows.size(0), 2 * width)
        torch.mm(rows, gate.t(), out=y[:, :width])
        torch.mm(rows, up.t(), out=y[:, width:])
        ctx.save_for_backward(x, gate, up)
        return y.view(*x.shape[:-1], 2 * width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Tuple[Any, ...]:
        x, gate, up = ctx.saved_tensors
        rows, width = x.reshape(-1, x.size(-1)), gate.size(0)
        d_gate, d_up = dy.reshape(rows.size(0), -1).split(width, dim=1)
        dx = torch.mm(d_gate, gate).addmm_(d_up, up).view(x.shape) if ctx.needs_input_grad[0] else None
        return (dx, *(d.t() @ rows if wanted else None for d, wanted in zip((d_gate, d_up), ctx.needs_input_grad[1:])))


def _autocast() -> bool:
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # before torch 2.4
        return torch.is_autocast_cpu_enabled()


class Mlp(Patch):
    """down(act(gate(x)) * up(x)). names: of gate, up and down; up "": gate's has both, gate first."""

    kernel = "fused_swiglu"

    def __init__(self, module: nn.Module, names: Projections, kind: str) -> None:
        super().__init__(module)
        self._names, self._kind = names, kind
        self.settings = (*names, kind)
        self.reason = f"act(gate) * up of {kind} in one pass forward, one backward"

    def _gate_and_up(self, x: torch.Tensor) -> Any:
        gate = getattr(self.module, self._names.gate)
        if not self._names.up:
            return gate(x)
        up = getattr(self.module, self._names.up)
        plain = all(is_plain(linear) and linear.weight.dtype == x.dtype for linear in (gate, up))
        if plain and not _autocast():
            return _GateAndUp.apply(x, gate.weight, up.weight)
        return torch.cat([gate(x), up(x)], dim=-1)

    def __call__(self, x: torch.Tensor) -> Any:
        if not is_ours(x):
            return self.original(x)
        down = getattr(self.module, self._names.down)
        return down(SwigluFunction.apply(self._gate_and_up(x), self._kind))


def gate_then_up(in_turns: torch.Tensor) -> torch.Tensor:
    """[R, 2F] of gate and up in turns -> gate first, as the kernels read it."""
    return in_turns.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


class ExpertsGate(Patch):
    """act(gate) * up of an experts class of transformers 5, gate_up [R, 2F]."""

    kernel = "fused_swiglu"
    attribute = "_apply_gate"

    def __init__(self, module: nn.Module, kind: str) -> None:
        super().__init__(module)
        self._kind = kind
        self.settings = (kind,)
        self.reason = f"act(gate) * up of {kind} in one pass, where experts_implementation is not eager"

    def __call__(self, gate_up: torch.Tensor) -> torch.Tensor:
        if not is_ours(gate_up):
            return self.original(gate_up)
        if self._kind == "gpt_oss":
            gate_up = gate_then_up(gate_up)
        return SwigluFunction.apply(gate_up, self._kind)
