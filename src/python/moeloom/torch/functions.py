"""The kernels under autograd. Each is computed once: a second derivative is an error."""

from __future__ import annotations

from ctypes import byref, c_int64
from typing import Any, Optional, Tuple

import torch
from torch.autograd.function import once_differentiable

from .. import _words
from .._library import library
from .._table import REPLACE, GluSettings
from ..errors import ShapeError
from ._compile import Function
from ._experts_function import ExpertsFunction
from ._tensors import flat, given, indices, maybe, require_tensor, view
from .products import GmmFunction, HybridGmmFunction, gmm, grouped_mm

__all__ = ["ExpertsFunction", "GmmFunction", "HybridGmmFunction", "PermuteFunction", "RMSNormFunction", "RopeFunction",
           "SwigluFunction", "UnpermuteFunction", "gmm", "grouped_mm"]

_lib = library()


class SwigluFunction(Function):
    """apply(gate_up [..., 2F], kind="silu") -> act(gate) * up [..., F]; gate is the first half."""

    @staticmethod
    def forward(ctx: Any, gate_up: torch.Tensor, kind: str = "silu") -> torch.Tensor:
        rows = flat(gate_up, "gate_up")
        out = gate_up.new_empty(*gate_up.shape[:-1], gate_up.size(-1) // 2)
        _lib.ml_glu(GluSettings(kind=kind.encode()), view(rows, "gate_up"), None, view(flat(out, "out")))
        ctx.save_for_backward(gate_up)
        ctx.kind = kind
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: torch.Tensor) -> Tuple[Any, ...]:
        gate_up, = ctx.saved_tensors
        rows, d_rows = flat(gate_up, "gate_up"), flat(d_out, "d_out")
        d_gate_up = torch.empty_like(rows, memory_format=torch.contiguous_format)
        _lib.ml_glu_grad(GluSettings(kind=ctx.kind.encode()), view(rows), None, view(d_rows, "d_out"), view(d_gate_up),
                         None)
        return d_gate_up.view(gate_up.shape), None


class RMSNormFunction(Function):
    """apply(x [..., D], weight [D], eps, offset=0.0, gate=None) -> x / rms(x) * (offset + weight) * silu(gate).

    Of the dtype of x; computed in float32, so that bf16 is rounded once.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0,
                gate: Optional[torch.Tensor] = None) -> torch.Tensor:
        rows, gates = flat(x, "x"), None if gate is None else flat(gate, "gate")
        if gate is not None and gate.shape != x.shape:
            raise ShapeError(f"gate must have the shape of x, {list(x.shape)}; found {list(gate.shape)}")
        weight = given(weight, "weight", "D")
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        inv_rms = torch.empty(rows.size(0), dtype=torch.float32)
        _lib.ml_rmsnorm(view(rows, "x"), maybe(gates, "gate"), view(weight, "weight"), eps, offset,
                        view(flat(y, "y")), view(inv_rms))
        ctx.save_for_backward(x, weight, inv_rms, gate)
        ctx.eps, ctx.offset = eps, offset
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Tuple[Any, ...]:
        x, weight, inv_rms, gate = ctx.saved_tensors
        rows, d_rows, gates = flat(x, "x"), flat(dy, "dy"), None if gate is None else flat(gate, "gate")
        dx = torch.empty_like(rows, memory_format=torch.contiguous_format)
        dgate = None if gates is None else torch.empty_like(gates, memory_format=torch.contiguous_format)
        dweight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        _lib.ml_rmsnorm_grad(view(d_rows, "dy"), view(rows), maybe(gates), view(weight), ctx.eps, ctx.offset,
                             view(inv_rms), view(dx), maybe(dgate), maybe(dweight), REPLACE)
        return dx.view(x.shape), dweight, None, None, None if dgate is None else dgate.view(x.shape)


def _turned(function: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pairs: int,
            name: str) -> torch.Tensor:
    """x [B, H, S, d] with its heads turned, in the order of memory that x has."""
    heads = given(x, name, "BHSd")
    y = torch.empty_like(heads)
    function(view(heads.transpose(1, 2), name), view(cos, "cos"), view(sin, "sin"), pairs, view(y.transpose(1, 2)))
    return y


def _angles(values: torch.Tensor, name: str) -> torch.Tensor:
    require_tensor(values, name)
    return given(values.unsqueeze(0) if values.dim() == 2 else values, name, "BSr")


class RopeFunction(Function):
    """apply(q [B, H, S, d], k [B, Hk, S, d], cos [B, S, r], sin [B, S, r], interleaved=False) -> (q, k).

    The first r numbers of each head turn, in pairs i and i + r/2, or where interleaved 2i and 2i + 1; "to_halves":
    read as those, written as the former, as DeepSeek does. cos and sin have no gradient.
    """

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
                interleaved: _words.Interleaved = False) -> Tuple[torch.Tensor, torch.Tensor]:
        cos, sin = _angles(cos, "cos"), _angles(sin, "sin")
        ctx.pairs = _words.pairs(interleaved)
        ctx.save_for_backward(cos, sin)
        return _turned(_lib.ml_rope, q, cos, sin, ctx.pairs, "q"), _turned(_lib.ml_rope, k, cos, sin, ctx.pairs, "k")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dq: torch.Tensor, dk: torch.Tensor) -> Tuple[Any, ...]:
        cos, sin = ctx.saved_tensors
        grads = [_turned(_lib.ml_rope_grad, dy, cos, sin, ctx.pairs, "dy") if wanted else None
                 for dy, wanted in zip((dq, dk), ctx.needs_input_grad)]
        return (*grads, None, None, None)


class PermuteFunction(Function):
    """apply(x [T, D], topk_idx [T, K], num_experts) -> rows [R, D] by expert, then token; order [R]; counts [E].

    order is token * K + slot. An index of -1 or num_experts is no expert: such a slot has no row.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, topk_idx: torch.Tensor,
                num_experts: int) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, topk_idx = given(x, "x", "TD"), indices(topk_idx, "topk_idx", "TK")
        if x.size(0) != topk_idx.size(0):
            raise ShapeError(f"x must have the {topk_idx.size(0)} rows of topk_idx; found {x.size(0)}")
        order = torch.empty(topk_idx.numel(), dtype=torch.int64)
        counts, number = torch.empty(num_experts, dtype=torch.int64), c_int64()
        _lib.ml_permute_plan(view(topk_idx, "topk_idx"), num_experts, view(order), view(counts), byref(number))
        order = order[:number.value].clone() if number.value < order.numel() else order
        rows = x.new_empty(number.value, x.size(1))
        _lib.ml_permute(view(x, "x"), view(order), topk_idx.size(1), view(rows))
        ctx.mark_non_differentiable(order, counts)
        ctx.save_for_backward(order)
        ctx.tokens, ctx.top_k = topk_idx.shape
        return rows, order, counts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_rows: torch.Tensor, *_: Any) -> Tuple[Any, ...]:
        order, = ctx.saved_tensors
        dx = d_rows.new_empty(ctx.tokens, d_rows.size(1))
        _lib.ml_unpermute(view(given(d_rows, "d_rows")), view(order), None, ctx.top_k, view(dx))
        return dx, None, None


class UnpermuteFunction(Function):
    """apply(rows [R, D], order [R], topk_weights [T, K]) -> y [T, D], sums of each token's weighted rows."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, order: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
        rows, order = given(rows, "rows", "RD"), indices(order, "order", "R")
        topk_weights = given(topk_weights, "topk_weights", "TK")
        y = rows.new_empty(topk_weights.size(0), rows.size(1))
        _lib.ml_unpermute(view(rows, "rows"), view(order, "order"), view(topk_weights, "topk_weights"),
                          topk_weights.size(1), view(y))
        ctx.save_for_backward(rows, order, topk_weights)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Tuple[Any, ...]:
        rows, order, topk_weights = ctx.saved_tensors
        d_rows = torch.empty_like(rows, memory_format=torch.contiguous_format)
        d_weights = torch.empty_like(topk_weights, memory_format=torch.contiguous_format)
        _lib.ml_unpermute_grad(view(given(dy, "dy")), view(rows), view(order), view(topk_weights), view(d_rows),
                               view(d_weights))
        return d_rows, None, d_weights
