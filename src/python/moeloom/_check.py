"""Proves one step against torch: outputs and gradients of a layer's experts, and an update."""

from __future__ import annotations

from typing import Any, List, Tuple

import torch

from .torch import AdamW, MoE


def _plain(layer: MoE, x: torch.Tensor) -> torch.Tensor:
    scores = torch.softmax(x @ layer.gate.weight.T, dim=-1)
    weights, chosen = torch.topk(scores, layer.top_k, dim=-1)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    y = torch.zeros_like(x)
    for expert, (gate_up, down) in enumerate(zip(layer.experts.gate_up_proj, layer.experts.down_proj)):
        gate, up = (x @ gate_up.T).chunk(2, dim=-1)
        share = (weights * (chosen == expert)).sum(dim=-1, keepdim=True)
        y = y + share * ((torch.nn.functional.silu(gate) * up) @ down.T)
    return y


def _step(layer: MoE, optimizer: Any, forward: Any, x: torch.Tensor) -> List[torch.Tensor]:
    x = x.clone().requires_grad_()
    y = forward(x)
    (y * y).sum().backward()
    grads = [parameter.grad.clone() for parameter in layer.parameters()]
    optimizer.step()
    return [y.detach(), x.grad, *grads, *(parameter.detach() for parameter in layer.parameters())]


def differences() -> List[Tuple[str, float]]:
    """Of each tensor of a step the largest difference to torch's, over its largest number."""
    torch.manual_seed(0)
    ours, x = MoE(64, 48, 8, 2), torch.randn(37, 64)
    plain = MoE(64, 48, 8, 2)
    plain.load_state_dict(ours.state_dict())
    names = [name for name, _ in ours.named_parameters()]
    labels = ["y", "dx", *(f"d {name}" for name in names), *(f"new {name}" for name in names)]
    eps = 1e-3  # a smaller one makes as large updates of the last bits of small gradients
    pairs = zip(_step(ours, AdamW(ours.parameters(), eps=eps), ours, x),
                _step(plain, torch.optim.AdamW(plain.parameters(), eps=eps), lambda rows: _plain(plain, rows), x))
    return [(label, float((a - b).abs().max() / b.abs().max())) for label, (a, b) in zip(labels, pairs)]
