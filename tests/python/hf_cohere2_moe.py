"""As hf_classes.py, of Cohere 2 MoE: pairs side by side, each angle twice side by side; norms that subtract the mean."""

import torch
from torch import nn

import hf_classes
from hf_classes import HIDDEN


def rotate_half(x):
    return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)


def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class Cohere2MoeLayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.randn(HIDDEN)), 1e-5

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


class Cohere2MoeAttention(hf_classes.Qwen3MoeAttention):
    def forward(self, x):
        q, k = (p(x).unflatten(-1, (hf_classes.HEADS, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj))
        angles = (torch.arange(x.size(1))[None, :, None] / torch.arange(1, 5)).repeat_interleave(2, -1)
        q, k = apply_rotary_pos_emb(q, k, torch.cos(angles), torch.sin(angles))
        return (q * k).transpose(1, 2).flatten(2)


class Cohere2MoeExperts(hf_classes.Qwen3MoeExperts):
    pass


def model():
    torch.manual_seed(3)
    made = hf_classes.Model("cohere2_moe", hf_classes.StackedBlock(Cohere2MoeExperts()))
    made.norm, made.attention = Cohere2MoeLayerNorm(), Cohere2MoeAttention()
    return made
