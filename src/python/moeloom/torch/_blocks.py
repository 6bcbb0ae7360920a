"""Patches of experts: what stands in place of a sparse block's or an experts class's forward, by layout."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import nn

from ._each_expert import EachExpert
from ._experts_function import ExpertsFunction, ExpertWeights
from ._guards import refuse_computed
from ._lists import ListedExperts, Projections
from ._patch import Patch, is_ours
from ._routing import ROUTINGS, SHARED
from ._shares import shard_list, shard_stacks, share_of


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
                shard_list(holder, self.mesh, layer)
            else:
                shard_stacks(holder, num_experts, self.mesh, layer)

    def is_theirs(self, hidden_states: torch.Tensor) -> bool:
        """Whether the module's own method computes it. It cannot where other ranks have some of its experts."""
        are_shared = self.mesh is not None and self.mesh.ep > 1
        for holder in self.holders() if are_shared else ():
            refuse_computed(holder)
        if is_ours(hidden_states):
            return False
        if are_shared:
            raise TypeError(f"tokens are {hidden_states.dtype} on {hidden_states.device}; experts that ranks share "
                            "take 32 or 16 bits on the CPU")
        return True


class StackedExperts(ExpertsPatch):
    """Stacks [E, 2F, D], gate first, and [E, D, F]: transformers 5."""

    reason = "stacks [E, 2F, D], gate first, and [E, D, F] are read where they lie"

    def __init__(self, module: nn.Module, kind: str, mesh: Any, grads: str) -> None:
        super().__init__(module, kind, mesh, grads)
        self.weights = ExpertWeights(*self._stacks(), kind, mesh, grads, num_experts=self.sizes()[0],
                                     layer=0).of_none()

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
        self._each = EachExpert(module.experts, mesh)
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

    def _chosen(self) -> Any:
        """The experts as stacks; where they are none any more one by one; None: the module's own method computes them,
        which it cannot where other ranks have some."""
        if self.experts.stack():
            return self.experts
        return self._each if self._each.are_shared else None

    def __call__(self, hidden_states: torch.Tensor) -> Any:
        experts = self._chosen()
        if experts is None:
            return self.original(hidden_states)
        block = self.module
        hidden_states = _with_noise(block, hidden_states)
        tokens = hidden_states.reshape(-1, hidden_states.size(-1))
        logits, topk_idx, topk_weights = ROUTINGS[self._routing](block, hidden_states, tokens)
        y = experts(tokens, topk_idx, topk_weights)
        if self._shared:
            y = SHARED[self._shared](block, tokens, y)
        y = y.view(hidden_states.shape)
        return (y, logits) if self._returns_logits else y


class ListedMethod(ListedBlock):
    """A block of transformers 4 that has its experts in a method `moe`, as DeepSeek-V3."""

    attribute = "moe"

    def __call__(self, hidden_states: torch.Tensor, topk_indices: torch.Tensor,  # type: ignore[override]
                 topk_weights: torch.Tensor) -> torch.Tensor:
        experts = self._chosen()
        if experts is None:
            return self.original(hidden_states, topk_indices, topk_weights)
        y: torch.Tensor = experts(hidden_states, topk_indices, topk_weights)
        return y


def _with_noise(block: Any, hidden_states: torch.Tensor) -> torch.Tensor:
    """Of training, where Mixtral or Phi-MoE ask for it; in place, as they do it."""
    noise = getattr(block, "jitter_noise", None) or getattr(block, "input_jitter_noise", None) or 0.0
    if block.training and noise > 0:
        hidden_states *= torch.empty_like(hidden_states).uniform_(1.0 - noise, 1.0 + noise)
    return hidden_states
