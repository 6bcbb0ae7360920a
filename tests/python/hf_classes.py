"""Small modules with the names, attributes and formulas of Hugging Face's classes, in the layouts of 4 and 5."""

from types import SimpleNamespace

import torch
from torch import nn

HIDDEN, WIDTH, EXPERTS, TOP_K, HEADS = 16, 12, 5, 2, 2


def config(model_type):
    return SimpleNamespace(model_type=model_type)


def rotate_half(x):
    half = x.size(-1) // 2
    return torch.cat([-x[..., half:], x[..., :half]], dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class Qwen3MoeRMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))
        self.variance_epsilon = 1e-6

    def forward(self, hidden_states):
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden_states * torch.rsqrt(variance + self.variance_epsilon))


class Qwen3MoeAttention(nn.Module):
    """Of its own heads alone: what is turned is multiplied."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(2))

    def forward(self, x):
        q, k = (p(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj))
        angles = torch.arange(x.size(1))[None, :, None] / torch.arange(1, 5)
        cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        return (q * k).transpose(1, 2).flatten(2)


class Qwen3MoeMLP(nn.Module):
    def __init__(self, act_fn=None):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(HIDDEN, WIDTH, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.act_fn = act_fn or nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class MixtralBlockSparseTop2MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(HIDDEN, WIDTH, bias=False) for _ in range(2))
        self.w2 = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.w2(self.act_fn(self.w1(x)) * self.w3(x))


def routed(logits, normalize=True):
    weights, chosen = torch.topk(torch.softmax(logits, -1), TOP_K)
    return (weights / weights.sum(-1, keepdim=True) if normalize else weights), chosen


def loop(experts, tokens, chosen, weights):
    y = torch.zeros_like(tokens)
    for number, expert in enumerate(experts):
        token, slot = torch.where(chosen == number)
        y = y.index_add(0, token, expert(tokens[token]) * weights[token, slot, None])
    return y


class _ListedBlock(nn.Module):
    expert, norm_topk_prob = Qwen3MoeMLP, False

    def __init__(self):
        super().__init__()
        self.top_k = TOP_K
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList(self.expert() for _ in range(EXPERTS))

    def forward(self, hidden_states):
        tokens = hidden_states.reshape(-1, HIDDEN)
        logits = self.gate(tokens)
        weights, chosen = routed(logits, self.norm_topk_prob)
        return loop(self.experts, tokens, chosen, weights).view(hidden_states.shape), logits


class Qwen3MoeSparseMoeBlock(_ListedBlock):
    """transformers 4."""


class MixtralSparseMoeBlock(_ListedBlock):
    expert, norm_topk_prob, jitter_noise = MixtralBlockSparseTop2MLP, True, 0.0


class DeepseekV3MLP(Qwen3MoeMLP):
    pass


class DeepseekV3TopkRouter(nn.Linear):
    def forward(self, x):
        weights, chosen = routed(super().forward(x.reshape(-1, HIDDEN)))
        return chosen, weights


class DeepseekV3MoE(nn.Module):
    """transformers 4."""

    def __init__(self):
        super().__init__()
        self.gate = DeepseekV3TopkRouter(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList(DeepseekV3MLP() for _ in range(EXPERTS))
        self.shared_experts = DeepseekV3MLP()

    def moe(self, hidden_states, topk_indices, topk_weights):
        return loop(self.experts, hidden_states, topk_indices, topk_weights)

    def forward(self, hidden_states):
        chosen, weights = self.gate(hidden_states)
        y = self.moe(hidden_states.reshape(-1, HIDDEN), chosen, weights).view(hidden_states.shape)
        return y + self.shared_experts(hidden_states), None


class Qwen3MoeExperts(nn.Module):
    """transformers 5: [E, 2F, D] and [E, D, F]."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.num_experts = EXPERTS
        self.gate_up_proj = nn.Parameter(0.2 * torch.randn(EXPERTS, 2 * width, HIDDEN))
        self.down_proj = nn.Parameter(0.2 * torch.randn(EXPERTS, HIDDEN, width))
        self.act_fn = nn.SiLU()

    def one(self, number):
        def expert(x):
            gate, up = (x @ self.gate_up_proj[number].T).chunk(2, -1)
            return (self.act_fn(gate) * up) @ self.down_proj[number].T
        return expert

    def forward(self, hidden_states, top_k_index, top_k_weights):
        return loop([self.one(e) for e in range(EXPERTS)], hidden_states, top_k_index, top_k_weights)


class Qwen3VLMoeTextExperts(nn.Module):
    """transformers 4: [E, D, 2F] and [E, F, D]; 2F = D, so that shapes do not tell."""

    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Parameter(0.2 * torch.randn(EXPERTS, HIDDEN, HIDDEN))
        self.down_proj = nn.Parameter(0.2 * torch.randn(EXPERTS, HIDDEN // 2, HIDDEN))
        self.act_fn = nn.SiLU()

    def one(self, number):
        def expert(x):
            gate, up = (x @ self.gate_up_proj[number]).chunk(2, -1)
            return (self.act_fn(gate) * up) @ self.down_proj[number]
        return expert

    def forward(self, hidden_states, routing_weights, router_indices):
        tokens = hidden_states.reshape(-1, HIDDEN)
        return loop([self.one(e) for e in range(EXPERTS)], tokens, router_indices,
                    routing_weights.gather(1, router_indices)).view(hidden_states.shape)


class StackedBlock(nn.Module):
    """Around an experts class."""

    def __init__(self, experts, scatters=False):
        super().__init__()
        self.gate, self.moe_experts, self._scatters = nn.Linear(HIDDEN, EXPERTS, bias=False), experts, scatters

    def forward(self, hidden_states):
        tokens = hidden_states.reshape(-1, HIDDEN)
        logits = self.gate(tokens)
        weights, chosen = routed(logits)
        if self._scatters:
            return self.moe_experts(hidden_states, torch.zeros_like(logits).scatter(1, chosen, weights), chosen), logits
        return self.moe_experts(tokens, chosen, weights).view(hidden_states.shape), logits


class Model(nn.Module):
    """hidden [B, S, D] -> a loss."""

    def __init__(self, model_type, block, **more):
        super().__init__()
        self.config = config(model_type)
        self.norm, self.attention, self.block = Qwen3MoeRMSNorm(), Qwen3MoeAttention(), block
        for name, module in more.items():
            setattr(self, name, module)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return (x + self.block(x)[0]).pow(2).mean()


# model_type, block: each layout of experts that there is.
LAYOUTS = {
    "4.x list": ("qwen3_moe", Qwen3MoeSparseMoeBlock),
    "4.x list, w1 w3 w2": ("mixtral", MixtralSparseMoeBlock),
    "4.x list in a method": ("deepseek_v3", DeepseekV3MoE),
    "4.x stack": ("qwen3_vl_moe", lambda: StackedBlock(Qwen3VLMoeTextExperts(), scatters=True)),
    "5.x stack": ("qwen3_moe", lambda: StackedBlock(Qwen3MoeExperts())),
    "5.x stack, 2F = D": ("qwen3_moe", lambda: StackedBlock(Qwen3MoeExperts(HIDDEN // 2))),
}


def model(layout, seed=0, **more):
    torch.manual_seed(seed)
    model_type, block = LAYOUTS[layout]
    return Model(model_type, block(), **more)
