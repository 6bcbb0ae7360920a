"""As hf_classes.py, of Gemma 4: a norm that may have no weight; a rope that turns one tensor, tokens before heads."""

import torch
from torch import nn

import hf_classes
from hf_classes import HEADS, HIDDEN, rotate_half


def apply_rotary_pos_emb(x, cos, sin, unsqueeze_dim=1):
    return x * cos.unsqueeze(unsqueeze_dim) + rotate_half(x) * sin.unsqueeze(unsqueeze_dim)


class Gemma4RMSNorm(nn.Module):
    def __init__(self, dim=HIDDEN, with_scale=True):
        super().__init__()
        self.eps, self.with_scale = 1e-6, with_scale
        if with_scale:
            self.weight = nn.Parameter(torch.randn(dim))

    def forward(self, hidden_states):
        normed = hidden_states * torch.pow(hidden_states.pow(2).mean(-1, keepdim=True) + self.eps, -0.5)
        return normed * self.weight if self.with_scale else normed


class Gemma4TextAttention(nn.Module):
    """Of its own heads alone: what is turned is multiplied. The second half of the angles is 0: those do not turn."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(2))
        self.q_norm, self.v_norm = Gemma4RMSNorm(HIDDEN // HEADS), Gemma4RMSNorm(HIDDEN // HEADS, with_scale=False)

    def forward(self, x):
        q, k = (p(x).unflatten(-1, (HEADS, -1)) for p in (self.q_proj, self.k_proj))
        angles = torch.arange(x.size(1))[None, :, None] * torch.tensor([1.0, 0.5, 0.0, 0.0])
        cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))
        v = self.v_norm(k)
        q, k = (apply_rotary_pos_emb(each, cos, sin, unsqueeze_dim=2) for each in (self.q_norm(q), k))
        return (q * k * v).flatten(2)


class Gemma4TextExperts(hf_classes.Qwen3MoeExperts):
    def __init__(self):
        super().__init__()
        self.act_fn = nn.GELU(approximate="tanh")


def model():
    torch.manual_seed(3)
    made = hf_classes.Model("gemma4_text", hf_classes.StackedBlock(Gemma4TextExperts()))
    made.norm, made.attention = Gemma4RMSNorm(), Gemma4TextAttention()
    return made
