"""How the sparse blocks of transformers 4 choose experts, as their own forward does it, in torch.

Each: block, hidden_states [B, S, D], tokens [T, D] -> router_logits, topk_idx [T, K], topk_weights [T, K].
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Tuple

import torch

Routing = Tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _softmax_top_k(logits: torch.Tensor, top_k: int, normalize: bool, dtype: torch.dtype) -> Routing:
    scores = torch.softmax(logits, dim=1, dtype=torch.float)
    weights, chosen = torch.topk(scores, top_k, dim=-1)
    if normalize:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return logits, chosen, weights.to(dtype)


def softmax(block: Any, hidden: torch.Tensor, tokens: torch.Tensor) -> Routing:
    """Qwen, OLMoE: divided by the sum where norm_topk_prob says so."""
    return _softmax_top_k(block.gate(tokens), block.top_k, block.norm_topk_prob, tokens.dtype)


def softmax_normalized(block: Any, hidden: torch.Tensor, tokens: torch.Tensor) -> Routing:
    """Mixtral: always."""
    return _softmax_top_k(block.gate(tokens), block.top_k, True, tokens.dtype)


def softmax_of_gate_module(block: Any, hidden: torch.Tensor, tokens: torch.Tensor) -> Routing:
    """Hunyuan, whose gate is a module of its own and takes three dimensions."""
    return _softmax_top_k(block.gate(hidden), block.top_k, True, tokens.dtype)


def sparse_mixer(block: Any, hidden: torch.Tensor, tokens: torch.Tensor) -> Routing:
    """Phi-MoE: its model's own function, random in training."""
    logits = block.gate(tokens)
    mixer = inspect.unwrap(type(block).forward).__globals__["sparsemixer"]
    weights, chosen = mixer(logits, jitter_eps=block.router_jitter_noise, training=block.training)
    return logits, chosen, weights


def corrected_softmax(block: Any, hidden: torch.Tensor, tokens: torch.Tensor) -> Routing:
    """ERNIE: chosen by corrected scores, in fp32 whatever autocast says."""
    with torch.autocast(device_type=tokens.device.type, enabled=False):
        logits = block.gate(tokens.float())
        scores = torch.softmax(logits, dim=1, dtype=torch.float)
        _, chosen = torch.topk(block.moe_statics(scores), block.top_k, dim=-1)
        weights = torch.gather(scores, dim=-1, index=chosen)
        weights = weights / torch.clamp(weights.sum(dim=-1, keepdim=True), min=block.norm_min)
    return logits, chosen, weights.to(tokens.dtype)


def softmax_of_chosen(block: Any, hidden: torch.Tensor, tokens: torch.Tensor) -> Routing:
    """Granite."""
    logits = block.router.layer(tokens).float()
    values, chosen = logits.topk(block.router.top_k, dim=1)
    return logits, chosen, torch.softmax(values, dim=1).type_as(tokens)


ROUTINGS: Dict[str, Callable[[Any, torch.Tensor, torch.Tensor], Routing]] = {
    function.__name__: function
    for function in (softmax, softmax_normalized, softmax_of_gate_module, sparse_mixer, corrected_softmax,
                     softmax_of_chosen)
}


# ---- what a block adds to its experts: tokens [T, D], y [T, D] -> y ----

def gated_shared_expert(block: Any, tokens: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y + torch.sigmoid(block.shared_expert_gate(tokens)) * block.shared_expert(tokens)


def shared_experts(block: Any, tokens: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y if block.shared_experts is None else y + block.shared_experts(tokens)


def shared_mlp(block: Any, tokens: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y + block.shared_mlp(tokens)


SHARED: Dict[str, Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    function.__name__: function for function in (gated_shared_expert, shared_experts, shared_mlp)
}
