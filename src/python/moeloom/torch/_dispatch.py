"""Rows to the ranks that hold their experts and home under autograd, for who multiplies them himself.

    rows, weights, counts, trip = DispatchFunction.apply(x, topk_idx, topk_weights, Layer(mesh, num_experts))
    y = CombineFunction.apply(products(rows, counts), trip, weights)

Each direction is the other's gradient, by the same plan. Both are collective over the mesh's row of ep, their backward
too: so every rank's backward has to come here, also that of a rank without a row. Hence the anchor, an empty result of
dispatch that goes into combine beside rows which may not have come from there.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Tuple

import torch
from torch.autograd.function import once_differentiable

from .._group import group_of
from .._library import library
from .._passes import Passes
from ..errors import ShapeError
from ._compile import Function, outside_graphs
from ._experts_function import _saved
from ._tensors import given, indices, maybe, view
from .functions import PermuteFunction, UnpermuteFunction


class Layer(NamedTuple):
    """num_experts: over all ranks of the mesh's row; None: one process. number: names it in errors."""

    mesh: Any
    num_experts: int
    number: int = 0

    @property
    def is_shared(self) -> bool:
        return self.mesh is not None and self.mesh.ep > 1


Tensors = Tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def checked(x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> Tensors:
    """x [T, D], topk_idx and topk_weights [T, K], of what dispatch takes. Before a plan, which meets other ranks: one
    that is refused by itself has not begun, and may call again. Sizes that differ are refused by all of them."""
    x, topk_idx = given(x, "x", "TD"), indices(topk_idx, "topk_idx", "TK")
    topk_weights = given(topk_weights, "topk_weights", "TK")
    view(x, "x")
    view(topk_weights, "topk_weights")
    return x, topk_idx, topk_weights


def require_weight_of_each(topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> None:
    """On this rank alone, where the weights do not go through dispatch."""
    if topk_weights.shape != topk_idx.shape:
        raise ShapeError(f"topk_weights must have the shape of topk_idx, {list(topk_idx.shape)}; found "
                         f"{list(topk_weights.shape)}")


class Plan:
    """Where rows of topk_idx [T, K] go, -1 or num_experts being no expert: `counts` [e] to this rank's experts."""

    def __init__(self, layer: Layer, topk_idx: torch.Tensor) -> None:
        topk_idx = indices(topk_idx, "topk_idx", "TK")
        group = group_of(layer.mesh)
        self.experts = group.experts(layer.num_experts, "silu", layer.number)
        self.handle = self.experts.plan(view(topk_idx, "topk_idx"))
        self.tokens, self.top_k = topk_idx.shape
        self.counts = torch.empty(group.experts_of(layer.num_experts)[1], dtype=torch.int64)
        library().ml_trip_counts(self.handle.value, view(self.counts))
        self.rows = int(library().ml_trip_rows(self.handle.value))

    def dispatch(self, x: torch.Tensor, scalars: Optional[torch.Tensor]) -> Tuple[Any, Any]:
        """x [T, D], scalars [T, K] -> [R, D], [R]."""
        rows = x.new_empty(self.rows, x.size(-1))
        landed = None if scalars is None else scalars.new_empty(self.rows)
        self.experts.dispatch(self.handle, view(x, "x"), maybe(scalars, "topk_weights"), view(rows), maybe(landed))
        return rows, landed

    def combine(self, rows: torch.Tensor, weights: Optional[torch.Tensor],
                scalars: Optional[torch.Tensor]) -> Tuple[Any, Any]:
        """rows [R, D], weights and scalars [R] -> sums of weights * rows [T, D], scalars [T, K]."""
        y = rows.new_empty(self.tokens, rows.size(-1))
        slots = None if scalars is None else scalars.new_empty(self.tokens, self.top_k)
        self.experts.combine(self.handle, view(rows, "rows"), maybe(weights, "row_weights"), maybe(scalars), view(y),
                             maybe(slots))
        return y, slots


class Trip(NamedTuple):
    """What combine takes. A plan of its own, which contexts hold: the anchor holds the context that made it."""

    plan: Plan
    anchor: torch.Tensor


class Out(Function):
    """apply(x [T, D], topk_weights [T, K] or None, plan) -> rows [R, D], row_weights [R] or None, anchor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, topk_weights: Optional[torch.Tensor], plan: Plan) -> Tuple[Any, ...]:
        x = given(x, "x", "TD")
        if topk_weights is not None:
            topk_weights = given(topk_weights, "topk_weights", "TK")
        ctx.plan = plan
        return (*plan.dispatch(x, topk_weights), x.new_empty(0))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_rows: torch.Tensor, d_row_weights: Optional[torch.Tensor], _: Any) -> Tuple[Any, ...]:
        scalars = None if d_row_weights is None else given(d_row_weights, "d_row_weights")
        return (*ctx.plan.combine(given(d_rows, "d_rows"), None, scalars), None)


class _Home(Function):
    """apply(rows [R, D], row_weights [R] or None, plan, anchor) -> y [T, D]."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, row_weights: Optional[torch.Tensor], plan: Plan,
                anchor: torch.Tensor) -> torch.Tensor:
        rows = given(rows, "rows", "RD")
        if row_weights is not None:
            row_weights = given(row_weights, "row_weights", "R")
            ctx.save_for_backward(rows, row_weights)
        ctx.plan, ctx.spent, ctx.weighted = plan, False, row_weights is not None
        y: torch.Tensor = plan.combine(rows, row_weights, None)[0]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Tuple[Any, ...]:
        saved = _saved(ctx) if ctx.weighted else ()
        ctx.spent = True
        landed = ctx.plan.dispatch(given(dy, "dy"), None)[0]
        if not saved:
            return landed, None, None, None
        rows, weights = saved
        d_rows, d_weights = torch.empty_like(rows, memory_format=torch.contiguous_format), torch.empty_like(weights)
        library().ml_unpermute_grad(view(landed), view(rows), view(torch.arange(rows.size(0))),
                                    view(weights.unsqueeze(1)), view(d_rows), view(d_weights.unsqueeze(1)))
        return d_rows, d_weights, None, None


@outside_graphs
def _dispatched(x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
                layer: Layer) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, Trip]:
    """As DispatchFunction, of what has been checked."""
    plan = Plan(layer, topk_idx)
    rows, row_weights, anchor = Out.apply(x, topk_weights, plan)
    return rows, row_weights, plan.counts, Trip(plan, anchor)


class DispatchFunction:
    """apply(x [T, D], topk_idx [T, K], topk_weights [T, K], layer) -> rows [R, D], row_weights [R], counts [e], trip.

    Rows of this rank's experts by expert, then source rank, then token; counts: of each expert, int64.
    """

    @staticmethod
    @outside_graphs
    def apply(x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
              layer: Layer) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, Trip]:
        return _dispatched(*checked(x, topk_idx, topk_weights), layer)


class CombineFunction:
    """apply(rows [R, D], trip, row_weights [R] = 1) -> y [T, D], sums of each token's weighted rows, slot by slot."""

    @staticmethod
    @outside_graphs
    def apply(rows: torch.Tensor, trip: Trip, row_weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        y: torch.Tensor = _Home.apply(rows, row_weights, trip.plan, trip.anchor)
        return y


def in_graph(rows: torch.Tensor) -> torch.Tensor:
    """Rows whose combine has a backward on every rank, where parameters of some ranks alone may have made rows."""
    return rows if rows.requires_grad or not torch.is_grad_enabled() else rows.detach().requires_grad_()


class _CountsBackward(Function):
    """apply(x, passes) -> x, whose backward counts: it comes on every rank, also on one without a row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, passes: Passes) -> torch.Tensor:
        ctx.passes = passes
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dx: torch.Tensor) -> Tuple[Any, ...]:
        ctx.passes.backwards += 1
        return dx, None


@outside_graphs
def _counting(x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
              layer: Layer) -> Tuple[Tensors, Optional[Passes]]:
    """All as checked, and where the forward counts once no rank can refuse it any more; None: it has no backward."""
    x, topk_idx, topk_weights = checked(x, topk_idx, topk_weights)
    passes = None
    if layer.mesh is not None and x.requires_grad and torch.is_grad_enabled():
        passes = group_of(layer.mesh).passes
        x = _CountsBackward.apply(x, passes)
    return (x, topk_idx, topk_weights), passes


@outside_graphs
def _count_forward(passes: Optional[Passes]) -> None:
    if passes is not None:
        passes.forwards += 1


Products = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def through(products: Products, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, layer: Layer,
            scales_inputs: bool = False) -> torch.Tensor:
    """x [T, D] -> sums of weight * products(rows [R, D], counts [e]), which is of this rank's experts; where the model
    scales inputs, of products(weight * rows, counts)."""
    (x, topk_idx, topk_weights), passes = _counting(x, topk_idx, topk_weights, layer)
    if not layer.is_shared:
        require_weight_of_each(topk_idx, topk_weights)
        rows, order, counts = PermuteFunction.apply(x, topk_idx, layer.num_experts)
        if scales_inputs:
            rows, topk_weights = rows * topk_weights.reshape(-1, 1)[order], torch.ones_like(topk_weights)
        y = UnpermuteFunction.apply(products(rows, counts), order, topk_weights)
        _count_forward(passes)  # not of a rank that was refused, and calls again
        return y
    rows, row_weights, counts, trip = _dispatched(x, topk_idx, topk_weights, layer)
    _count_forward(passes)
    if scales_inputs:
        return CombineFunction.apply(products(rows * row_weights.unsqueeze(1), counts), trip)
    return CombineFunction.apply(products(rows, counts), trip, row_weights)
