"""Patches of experts in stacks [E, D, 2F] and [E, F, D]: products one by one, which read them where they lie."""

from __future__ import annotations

from typing import Any, Tuple

import torch
from torch import nn

from ._blocks import ExpertsPatch
from ._dispatch import Layer, through
from ._elementwise import gate_then_up
from .functions import SwigluFunction
from .products import BiasFunction, GmmFunction


class InOutExperts(ExpertsPatch):
    """Experts class of Qwen3-VL in transformers 4: forward(hidden, weights of all experts, indices)."""

    reason = "stacks [E, D, 2F] and [E, F, D] are read where they lie, product by product"

    def sizes(self) -> Tuple[int, int, int]:
        down = self.module.down_proj
        return self.shared_among(down), down.size(2), down.size(1)

    def place(self) -> Layer:
        return Layer(self.mesh, self.sizes()[0], self.layer)

    def rows(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """rows [R, D] by expert -> [R, D]."""
        gate_up = GmmFunction.apply(rows, self.module.gate_up_proj, counts)
        return GmmFunction.apply(SwigluFunction.apply(gate_up, self.kind), self.module.down_proj, counts)

    def experts(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
        return through(self.rows, x, topk_idx, topk_weights, self.place())

    def __call__(self, hidden_states: torch.Tensor, routing_weights: torch.Tensor,
                 router_indices: torch.Tensor) -> Any:
        if self.is_theirs(hidden_states):
            return self.original(hidden_states, routing_weights, router_indices)
        tokens = hidden_states.reshape(-1, hidden_states.size(-1))
        y = self.experts(tokens, router_indices, routing_weights.gather(1, router_indices))
        return y.view(hidden_states.size(0), -1, hidden_states.size(-1))


class GptOssExperts(InOutExperts):
    """With biases, and gate and up in turns. weights_of_all: [T, E] of transformers 4, not [T, K]."""

    reason = "stacks [E, D, 2F], gate and up in turns, and [E, F, D] are read where they lie, product by product"

    def __init__(self, module: nn.Module, kind: str, mesh: Any, grads: str, weights_of_all: bool) -> None:
        super().__init__(module, kind, mesh, grads)
        self._weights_of_all = weights_of_all

    def rows(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        module = self.module
        gate_up = GmmFunction.apply(rows, module.gate_up_proj, counts)
        gate_up = gate_then_up(BiasFunction.apply(gate_up, module.gate_up_proj_bias, counts))
        y = GmmFunction.apply(SwigluFunction.apply(gate_up, self.kind), module.down_proj, counts)
        biased: torch.Tensor = BiasFunction.apply(y, module.down_proj_bias, counts)
        return biased

    def __call__(self, hidden_states: torch.Tensor, router_indices: torch.Tensor,  # type: ignore[override]
                 routing_weights: torch.Tensor) -> Any:
        if self.is_theirs(hidden_states):
            return self.original(hidden_states, router_indices, routing_weights)
        tokens = hidden_states.reshape(-1, hidden_states.size(-1))
        if self._weights_of_all:
            routing_weights = routing_weights.gather(1, router_indices)
        return self.experts(tokens, router_indices, routing_weights).view(hidden_states.shape)


class Llama4Block(ExpertsPatch):
    """Llama4TextMoe, which computes every expert of every token, most of them of zeros, and scales the inputs."""

    reason = "stacks [E, D, 2F] and [E, F, D] are read where they lie; of a token only the experts that it chose"

    def __init__(self, module: Any, kind: str, mesh: Any, grads: str) -> None:
        super().__init__(module, kind, mesh, grads)
        self._experts = InOutExperts(module.experts, kind, mesh, grads)

    def sizes(self) -> Tuple[int, int, int]:
        return self._experts.sizes()

    def holders(self) -> Tuple[nn.Module, ...]:
        return (self.module.experts,)

    def take_share(self, layer: int) -> None:
        super().take_share(layer)
        self._experts.layer = layer

    def __call__(self, hidden_states: torch.Tensor) -> Any:
        if self.is_theirs(hidden_states):
            return self.original(hidden_states)
        block = self.module
        tokens = hidden_states.reshape(-1, hidden_states.size(-1))
        scores, logits = block.router(tokens)
        topk_idx = torch.topk(logits, block.top_k, dim=1)[1]
        weights = scores.gather(1, topk_idx)
        y = through(self._experts.rows, tokens, topk_idx, weights, self._experts.place(), scales_inputs=True)
        return y + block.shared_expert(tokens), logits
