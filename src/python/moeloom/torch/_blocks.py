"""Patches of experts: what stands in place of a sparse block's or an experts class's forward, by layout."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import nn

from ._elementwise import gate_then_up
from ._experts_function import ExpertsFunction, ExpertWeights
from ._lists import ListedExperts, Projections
from ._patch import Patch, is_ours
from ._routing import ROUTINGS, SHARED
from ._shares import shard_list, shard_stacks, share_of
from .functions import PermuteFunction, SwigluFunction, UnpermuteFunction
from .products import GmmFunction


class ExpertsPatch(Patch):
    """Of one layer. `settings` are those that a second application may change."""

    kernel = "fused_moe"

    def __init__(self, module: nn.Module, kind: str, mesh: Any, grads: str) -> None:
        super().__init__(module)
        self.kind, self.mesh, self.grads = kind, mesh, grads
        self.settings = (kind, mesh, grads)
        self.layer = 0

    def holders(self) -> Tuple[nn.Module, ...]:
        """Modules that have the layer's experts: with stacks [E, ...] of their own, or lists of E."""
        return (self.module,)

    def shared_among(self, stack: torch.Tensor) -> int:
        """E of the layer, of whose stacks this is one, [e, ...]."""
        share = share_of(self.holders()[0])
        return stack.size(0) if share is None else share.num_experts

    def take_share(self, layer: int) -> None:
        """Of the mesh's experts those of this rank stay here. layer: its number, which errors name."""
        self.layer = layer
        if self.mesh is None:
            return
        num_experts = self.sizes()[0]
        for holder in self.holders():
            if isinstance(holder, nn.ModuleList):
                shard_list(holder, self.mesh)
            else:
                shard_stacks(holder, num_experts, self.mesh)

    def is_theirs(self, hidden_states: torch.Tensor) -> bool:
        """Whether the module's own method computes it. It cannot where other ranks have some of its experts."""
        if is_ours(hidden_states):
            return False
        if self.mesh is not None and self.mesh.ep > 1:
            raise TypeError(f"tokens are {hidden_states.dtype} on {hidden_states.device}; experts that ranks share "
                            "take 32 or 16 bits on the CPU")
        return True


class StackedExperts(ExpertsPatch):
    """Stacks [E, 2F, D], gate first, and [E, D, F]: transformers 5."""

    reason = "stacks [E, 2F, D], gate first, and [E, D, F] are read where they lie"

    def __init__(self, module: nn.Module, kind: str, mesh: Any, grads: str) -> None:
        super().__init__(module, kind, mesh, grads)
        self.weights = ExpertWeights(*self._stacks(), kind, mesh, grads, num_experts=self.sizes()[0]).of_none()

    def take_share(self, layer: int) -> None:
        super().take_share(layer)
        self.weights.layer = layer

    def _stacks(self) -> Tuple[torch.Tensor, torch.Tensor]:
        return self.module.gate_up_proj, self.module.down_proj

    def sizes(self) -> Tuple[int, int, int]:
        down = self._stacks()[1]
        return self.shared_among(down), down.size(1), down.size(2)

    def _experts(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
        return ExpertsFunction.apply(x, topk_idx, topk_weights, self.weights.of(*self._stacks()))

    def __call__(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor,
                 top_k_weights: torch.Tensor) -> Any:
        if self.is_theirs(hidden_states):
            return self.original(hidden_states, top_k_index, top_k_weights)
        tokens = hidden_states.reshape(-1, hidden_states.size(-1))
        return self._experts(tokens, top_k_index, top_k_weights).view(hidden_states.shape)


class GraniteBlock(StackedExperts):
    """GraniteMoeMoE of transformers 4, which has such stacks under other names."""

    def _stacks(self) -> Tuple[torch.Tensor, torch.Tensor]:
        return self.module.input_linear.weight, self.module.output_linear.weight

    def holders(self) -> Tuple[nn.Module, ...]:
        return self.module.input_linear, self.module.output_linear

    def __call__(self, layer_input: torch.Tensor) -> Any:  # type: ignore[override]
        if self.is_theirs(layer_input):
            return self.original(layer_input)
        tokens = layer_input.reshape(-1, layer_input.size(-1))
        logits, topk_idx, topk_weights = ROUTINGS["softmax_of_chosen"](self.module, layer_input, tokens)
        return self._experts(tokens, topk_idx, topk_weights).view(layer_input.shape), logits


class ListedBlock(ExpertsPatch):
    """A block of transformers 4 whose experts are a ModuleList."""

    reason = "a list of nn.Linear, whose weights are views of one stack from here on"

    def __init__(self, module: Any, kind: str, mesh: Any, grads: str, names: Projections, routing: str,
                 shared: str, returns_logits: bool) -> None:
        super().__init__(module, kind, mesh, grads)
        self.experts = ListedExperts(module.experts, names, kind, mesh, grads)
        self._routing, self._shared, self._returns_logits = routing, shared, returns_logits

    def sizes(self) -> Tuple[int, int, int]:
        return self.experts.sizes()

    def holders(self) -> Tuple[nn.Module, ...]:
        return (self.module.experts,)

    def take_share(self, layer: int) -> None:
        super().take_share(layer)
        self.experts.layer = layer

    def install(self) -> None:
        super().install()
        standing = self.module.__dict__[self.attribute]
        standing.experts.stack()

    def __call__(self, hidden_states: torch.Tensor) -> Any:
        if not self.experts.stack():
            return self.original(hidden_states)
        block = self.module
        hidden_states = _with_noise(block, hidden_states)
        tokens = hidden_states.reshape(-1, hidden_states.size(-1))
        logits, topk_idx, topk_weights = ROUTINGS[self._routing](block, hidden_states, tokens)
        y = self.experts(tokens, topk_idx, topk_weights)
        if self._shared:
            y = SHARED[self._shared](block, tokens, y)
        y = y.view(hidden_states.shape)
        return (y, logits) if self._returns_logits else y


class ListedMethod(ListedBlock):
    """A block of transformers 4 that has its experts in a method `moe`, as DeepSeek-V3."""

    attribute = "moe"

    def __call__(self, hidden_states: torch.Tensor, topk_indices: torch.Tensor,  # type: ignore[override]
                 topk_weights: torch.Tensor) -> torch.Tensor:
        if not self.experts.stack():
            return self.original(hidden_states, topk_indices, topk_weights)
        return self.experts(hidden_states, topk_indices, topk_weights)


def _with_noise(block: Any, hidden_states: torch.Tensor) -> torch.Tensor:
    """Of training, where Mixtral or Phi-MoE ask for it; in place, as they do it."""
    noise = getattr(block, "jitter_noise", None) or getattr(block, "input_jitter_noise", None) or 0.0
    if block.training and noise > 0:
        hidden_states *= torch.empty_like(hidden_states).uniform_(1.0 - noise, 1.0 + noise)
    return hidden_states


# ---- stacks [E, D, 2F] and [E, F, D]: products one by one, each of which reads them where they lie ----

def _of_rows(bias: Optional[torch.Tensor], y: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return y if bias is None else y + bias.repeat_interleave(counts, dim=0).to(y.dtype)


class InOutExperts(ExpertsPatch):
    """Experts class of Qwen3-VL in transformers 4: forward(hidden, weights of all experts, indices)."""

    reason = "stacks [E, D, 2F] and [E, F, D] are read where they lie, product by product"

    def sizes(self) -> Tuple[int, int, int]:
        experts, intermediate, hidden = self.module.down_proj.shape
        return experts, hidden, intermediate

    def rows(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """rows [R, D] by expert -> [R, D]."""
        gate_up = GmmFunction.apply(rows, self.module.gate_up_proj, counts)
        return GmmFunction.apply(SwigluFunction.apply(gate_up, self.kind), self.module.down_proj, counts)

    def experts(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor) -> torch.Tensor:
        rows, order, counts = PermuteFunction.apply(x, topk_idx, self.module.down_proj.size(0))
        return UnpermuteFunction.apply(self.rows(rows, counts), order, topk_weights)

    def __call__(self, hidden_states: torch.Tensor, routing_weights: torch.Tensor,
                 router_indices: torch.Tensor) -> Any:
        if not is_ours(hidden_states):
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
        gate_up = _of_rows(module.gate_up_proj_bias, GmmFunction.apply(rows, module.gate_up_proj, counts), counts)
        y = GmmFunction.apply(SwigluFunction.apply(gate_then_up(gate_up), self.kind), module.down_proj, counts)
        return _of_rows(module.down_proj_bias, y, counts)

    def __call__(self, hidden_states: torch.Tensor, router_indices: torch.Tensor,  # type: ignore[override]
                 routing_weights: torch.Tensor) -> Any:
        if not is_ours(hidden_states):
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

    def __call__(self, hidden_states: torch.Tensor) -> Any:
        if not is_ours(hidden_states):
            return self.original(hidden_states)
        block = self.module
        tokens = hidden_states.reshape(-1, hidden_states.size(-1))
        scores, logits = block.router(tokens)
        topk_idx = torch.topk(logits, block.top_k, dim=1)[1]
        weights = scores.gather(1, topk_idx)
        rows, order, counts = PermuteFunction.apply(tokens, topk_idx, block.num_experts)
        rows = self._experts.rows(rows * weights.reshape(-1, 1)[order], counts)
        return UnpermuteFunction.apply(rows, order, torch.ones_like(weights)) + block.shared_expert(tokens), logits
