"""Grouped products under autograd: rows of each expert times its weight."""

from __future__ import annotations

from ctypes import pointer
from typing import Any, List, Tuple

import torch
from torch.autograd.function import once_differentiable

from .._library import library
from .._table import IN_OUT, OUT_IN, REPLACE, Array, Weights
from ..arrays import require_dims
from ..errors import ShapeError
from ._compile import Function
from ._tensors import given, indices, require_tensor, view

_lib = library()


def _stack(weight: torch.Tensor) -> Tuple[torch.Tensor, int]:
    """weight [E, C, N] as the library reads it: a stack [E, N, C] that was transposed goes as what it was."""
    if weight.stride(-1) != 1 and weight.stride(-2) == 1:
        return weight.transpose(1, 2), OUT_IN
    return given(weight, "weight"), IN_OUT


def _weights(stack: torch.Tensor, layout: int) -> Weights:
    return Weights(pointer(view(stack, "weight")), 1, layout)


class GmmFunction(Function):
    """apply(x [R, C], weight [E, C, N], group_list [E]) -> [R, N]; group_list: how many rows each expert has.

    A weight [E, N, C].transpose(1, 2), as transformers 5 keeps it, is not copied, nor is its gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, group_list: torch.Tensor) -> torch.Tensor:
        require_tensor(weight, "weight")
        require_dims(weight, "ECN", "weight")
        x, counts = given(x, "x", "RC"), indices(group_list, "group_list", "E")
        stack, layout = _stack(weight)
        y = x.new_empty(x.size(0), weight.size(2))
        _lib.ml_gmm(view(x, "x"), _weights(stack, layout), view(counts, "group_list"), view(y))
        ctx.save_for_backward(x, weight, counts)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Tuple[Any, ...]:
        x, weight, counts = ctx.saved_tensors
        dy = given(dy, "dy")
        dx = dweight = None
        if ctx.needs_input_grad[0]:
            dx = torch.empty_like(x, memory_format=torch.contiguous_format)
            stack, layout = _stack(weight)
            _lib.ml_gmm_input_grad(view(dy, "dy"), _weights(stack, layout), view(counts), view(dx))
        if ctx.needs_input_grad[1]:
            stack, layout = _stack(weight)
            grad = torch.empty_like(stack, memory_format=torch.contiguous_format)
            _lib.ml_gmm_weight_grad(view(dy, "dy"), view(x), view(counts), _weights(grad, layout), REPLACE)
            dweight = grad.transpose(1, 2) if layout == OUT_IN else grad
        return dx, dweight, None


class BiasFunction(Function):
    """apply(y [R, N], bias [E, N], counts [E]) -> y, to which the bias of each row's expert was added in place."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, bias: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        ctx.counts, ctx.dtype = counts.tolist(), bias.dtype
        for rows, each in zip(torch.split(y, ctx.counts), bias):
            rows += each
        ctx.mark_dirty(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Tuple[Any, ...]:
        parts = torch.split(dy, ctx.counts) if ctx.needs_input_grad[1] else ()
        sums = [rows.sum(0, dtype=torch.float32) for rows in parts]
        return dy, torch.stack(sums).to(ctx.dtype) if sums else None, None


def gmm(x: torch.Tensor, weight: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """x [R, C], weight [E, C, N], counts [E] -> [R, N]."""
    return GmmFunction.apply(x, weight, counts)


def grouped_mm(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """As transformers' `_grouped_mm`: input [S, C], weight [E, C, N], offs [E] the ends of the groups -> [S, N].

    The result has the dtype of weight, to which input is cast. Rows behind the last group belong to no expert, and are
    0 in the result.
    """
    for tensor, name in ((input, "input"), (weight, "weight")):
        require_tensor(tensor, name)
        if not tensor.is_floating_point():
            raise TypeError(f"{name} has dtype {tensor.dtype}; expected a floating point one")
    require_dims(input, "SC", "input")
    input = input.to(weight.dtype)  # noqa: A001
    ends = indices(offs, "offs", "E").to(torch.int64)
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    rows = int(ends[-1]) if ends.numel() else 0
    if rows == input.size(0):
        return GmmFunction.apply(input, weight, counts)
    if not 0 <= rows < input.size(0):
        raise ShapeError(f"offs ends at {rows}; expected at most the {input.size(0)} rows of input")
    y = GmmFunction.apply(input[:rows], weight, counts)
    return torch.cat([y, y.new_zeros(input.size(0) - rows, y.size(1))])


def _list(tensors: List[torch.Tensor]) -> Weights:
    arrays = (Array * len(tensors))(*[view(tensor, f"weight {i}") for i, tensor in enumerate(tensors)])
    return Weights(arrays, len(tensors), IN_OUT)


def _counts(tensors: List[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([tensor.size(0) for tensor in tensors], dtype=torch.int64)


class HybridGmmFunction(Function):
    """apply(num_experts, *x, *weight) -> num_experts tensors x_i w_i; x_i [R_i, C], R_i may be 0, weight_i [C, N]."""

    @staticmethod
    def forward(ctx: Any, num_experts: int, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        if num_experts < 1 or len(tensors) != 2 * num_experts:
            raise ShapeError(f"{num_experts} experts have an x and a weight each, {2 * num_experts} tensors; found "
                             f"{len(tensors)}")
        xs = [given(x, f"x {i}", "RC") for i, x in enumerate(tensors[:num_experts])]
        weights = [given(w, f"weight {i}", "CN") for i, w in enumerate(tensors[num_experts:])]
        for what, several in (("x", [x[:0] for x in xs]), ("weight", weights)):
            if any(t.shape != several[0].shape or t.dtype != several[0].dtype for t in several):
                found = [(*t.shape[what == "x":], str(t.dtype)) for t in several]
                raise ShapeError(f"every {what} must have the same width and dtype; found {found}")
        x, counts = torch.cat(xs), _counts(xs)
        y = x.new_empty(x.size(0), weights[0].size(1))
        _lib.ml_gmm(view(x), _list(weights), view(counts), view(y))
        ctx.save_for_backward(x, counts, *weights)
        # Pieces that autograd takes for tensors of their own: they may be changed in place.
        return tuple(torch.unsafe_split_with_sizes(y, counts.tolist()))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *dys: torch.Tensor) -> Tuple[Any, ...]:
        x, counts, *weights = ctx.saved_tensors
        experts = len(weights)
        wants_x, wants_weight = ctx.needs_input_grad[1:experts + 1], ctx.needs_input_grad[experts + 1:]
        dy = torch.cat(dys)
        dxs: Tuple[Any, ...] = (None,) * experts
        dweights: List[Any] = [None] * experts
        if any(wants_x):
            dx = torch.empty_like(x)
            _lib.ml_gmm_input_grad(view(dy), _list(weights), view(counts), view(dx))
            dxs = tuple(torch.unsafe_split_with_sizes(dx, counts.tolist()))
        if any(wants_weight):
            dweights = [torch.empty_like(w, memory_format=torch.contiguous_format) for w in weights]
            _lib.ml_gmm_weight_grad(view(dy), view(x), view(counts), _list(dweights), REPLACE)
        kept = [grad if wanted else None for grad, wanted in zip((*dxs, *dweights), (*wants_x, *wants_weight))]
        return (None, *kept)
