"""Experts in a list that no stack can hold, as under adapters or hooks, and that ranks share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ._dispatch import Layer, in_graph, through
from ._shares import local_experts, share_of


class EachExpert:
    """forward(x [T, D], topk_idx [T, K], topk_weights [T, K]): each module of a ModuleList is called with its rows.

    An expert without a row is not called, and its parameters get no gradient. Of experts that ranks share all are of
    this kind, or none: what is hung on one has to hang on those of other ranks too.
    """

    def __init__(self, experts: nn.ModuleList, mesh: Any) -> None:
        self._experts, self._mesh = experts, mesh

    @property
    def are_shared(self) -> bool:
        return self._place().is_shared

    def _place(self) -> Layer:
        share = share_of(self._experts)
        return Layer(self._mesh, len(self._experts), 0 if share is None else share.layer)

    def _rows(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        parts = zip(local_experts(self._experts), torch.split(rows, counts.tolist()))
        done = [expert(part) for (_, expert), part in parts if part.size(0)]
        return in_graph(torch.cat(done).to(rows.dtype) if done else rows)

    def __call__(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
        return through(self._rows, x, topk_idx, topk_weights, self._place())
