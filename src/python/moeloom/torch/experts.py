"""A mixture-of-experts layer, with the names of parameters that transformers 5 has."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

from .._passes import next_layer
from ..errors import ConfigError
from ._experts_function import ExpertsFunction, ExpertWeights
from ._shares import mark

__all__ = ["Experts", "ExpertWeights", "MoE"]


class Experts(nn.Module):
    """This rank's experts: gate_up_proj [e, 2F, D], gate first, and down_proj [e, D, F]."""

    def __init__(self, hidden: int, intermediate: int, num_experts: int, activation: str = "silu", mesh: Any = None,
                 grads: str = "kept", dtype: Optional[torch.dtype] = None) -> None:
        super().__init__()
        layer = next_layer(mesh)
        share = None if mesh is None else mark(self, num_experts, mesh, layer)
        here = num_experts if share is None else share.count
        self._first = 0 if share is None else share.begin
        self.gate_up_proj = nn.Parameter(torch.empty(here, 2 * intermediate, hidden, dtype=dtype))
        self.down_proj = nn.Parameter(torch.empty(here, hidden, intermediate, dtype=dtype))
        self._weights = ExpertWeights(self.gate_up_proj, self.down_proj, activation, mesh, grads,
                                      num_experts=num_experts, layer=layer).of_none()
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """As torch.nn.Linear: uniform up to 1 / sqrt(width of the input); an expert's numbers on any rank are those
        that it has in one process with the same seed."""
        for weight in (self.gate_up_proj, self.down_proj):
            bound = weight.size(-1) ** -0.5
            for number in range(self._weights.num_experts):
                drawn = torch.empty_like(weight[0]).uniform_(-bound, bound)
                if 0 <= number - self._first < weight.size(0):
                    weight[number - self._first] = drawn

    def forward(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor,
                top_k_weights: torch.Tensor) -> torch.Tensor:
        """hidden_states [T, D], top_k_index and top_k_weights [T, K] -> [T, D]."""
        weights = self._weights.of(self.gate_up_proj, self.down_proj)
        return ExpertsFunction.apply(hidden_states, top_k_index, top_k_weights, weights)

    def extra_repr(self) -> str:
        experts, hidden, intermediate = self.down_proj.shape
        return f"{experts} of {self._weights.num_experts} experts, hidden={hidden}, intermediate={intermediate}"


class MoE(nn.Module):
    """x [..., D] -> the sums of each token's top_k experts, chosen and weighted by softmax of a linear gate.

    normalize: the weights of the chosen are divided by their sum. activation: of transformers' hidden_act, or
    "gpt_oss". With a mesh every rank brings its own tokens and holds its share of the experts, and the gate must be the
    same on all of them.
    """

    def __init__(self, hidden: int, intermediate: int, num_experts: int, top_k: int, *, normalize: bool = True,
                 activation: str = "silu", mesh: Any = None, dtype: Optional[torch.dtype] = None) -> None:
        super().__init__()
        if not 1 <= top_k <= num_experts:
            raise ConfigError(f"top_k = {top_k}: expected 1 to num_experts = {num_experts}")
        self.gate = nn.Linear(hidden, num_experts, bias=False, dtype=dtype)
        self.experts = Experts(hidden, intermediate, num_experts, activation, mesh, dtype=dtype)
        self.top_k, self.normalize = top_k, normalize

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, x.size(-1))
        scores = torch.softmax(self.gate(tokens), dim=-1, dtype=torch.float32)
        top_k_weights, top_k_index = torch.topk(scores, self.top_k, dim=-1)
        if self.normalize:
            top_k_weights = top_k_weights / top_k_weights.sum(dim=-1, keepdim=True)
        return self.experts(tokens, top_k_index, top_k_weights).view(x.shape)
