"""Rows from rank to rank with DeepEP's names, so that code that was written for it can be tried on CPUs."""

from __future__ import annotations

from typing import Any, Tuple

import torch

from .._group import group_of
from .._passes import next_layer
from ..errors import ShapeError
from ._compile import outside_graphs
from ._dispatch import CombineFunction, Layer, Out, Plan, Trip, checked, in_graph, require_weight_of_each

__all__ = ["Buffer"]


class Buffer:
    """Of the ranks of the mesh's row of ep, which all call each function, and each backward, in the same order.

        recv_x, recv_idx, recv_weights, recv_counts, handle = buffer.dispatch(x, topk_idx, topk_weights, num_experts)
        y = buffer.combine(rows, handle)        # rows: what this rank's experts made of recv_x, weighted
    """

    def __init__(self, mesh: Any) -> None:
        self._mesh, self._group, self._number = mesh, group_of(mesh), next_layer(mesh)

    @outside_graphs
    def dispatch(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
                 num_experts: int) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Trip]:
        """x [T, D], topk_idx [T, K] (-1 or num_experts: none), topk_weights [T, K] -> of R rows, one for each token of
        any rank that chose one of this rank's experts, by source rank, then token:

        recv_x [R, D]; recv_topk_idx [R, K] int64, numbers among this rank's experts, -1 where the expert is none of
        them; recv_topk_weights [R, K], 0 there; recv_counts [e] int64, rows that chose each expert; the handle.
        recv_x and recv_topk_weights have gradients.
        """
        x, topk_idx, topk_weights = checked(x, topk_idx, topk_weights)
        require_weight_of_each(topk_idx, topk_weights)
        plan = Plan(Layer(self._mesh, self._group.size, self._number), self._ranks_of(topk_idx, num_experts))
        recv_x, _, anchor = Out.apply(x, None, plan)
        # Beside x, whose format may be too coarse for a number: in fp32 all up to 2^24 are exact.
        numbers, _, anchor_of_numbers = Out.apply(torch.cat([topk_idx.float(), topk_weights.float()], 1), None, plan)
        ids, weights = numbers.split(topk_idx.size(1), 1)
        begin, count = self._group.experts_of(num_experts)
        local = ids.detach().to(torch.int64) - begin
        here = (local >= 0) & (local < count)
        recv_counts = torch.bincount(local[here], minlength=count)
        weights = torch.where(here, weights, torch.zeros_like(weights)).to(topk_weights.dtype)
        trip = Trip(plan, torch.cat([anchor.float(), anchor_of_numbers]))
        return recv_x, torch.where(here, local, torch.full_like(local, -1)), weights, recv_counts, trip

    def combine(self, x: torch.Tensor, handle: Trip) -> torch.Tensor:
        """x [R, D] -> [T, D], of each token the sum of its rows, by rank."""
        return CombineFunction.apply(in_graph(x), handle)

    def _ranks_of(self, topk_idx: torch.Tensor, num_experts: int) -> torch.Tensor:
        """[T, ep]: the rank's number where it holds an expert that the token chose, else -1."""
        ranks = self._group.size
        if topk_idx.numel() and not -1 <= int(topk_idx.min()) <= int(topk_idx.max()) <= num_experts:
            raise ShapeError(f"topk_idx is from {int(topk_idx.min())} to {int(topk_idx.max())}; expected 0 to "
                             f"num_experts - 1 = {num_experts - 1}, or -1 for none")
        each, more = divmod(num_experts, ranks)  # the first have one more, as ml_group_experts() says
        sizes = torch.tensor([each + (rank < more) for rank in range(ranks)] + [1])
        holders = torch.arange(ranks + 1).repeat_interleave(sizes)  # nobody's number, ranks, is that of -1 too
        chosen = torch.zeros(topk_idx.size(0), ranks + 1, dtype=torch.bool)
        chosen.scatter_(1, holders[topk_idx.to(torch.int64)], True)
        return torch.where(chosen[:, :ranks], torch.arange(ranks), torch.full((1,), -1))
