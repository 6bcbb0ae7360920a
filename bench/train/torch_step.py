#!/usr/bin/env python3
"""The peer of step_bench: a whole training step of the same Qwen3-MoE shape in eager PyTorch (Debian: python3-torch).

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 /usr/bin/python3 bench/train/torch_step.py --case d256

What a user of a Python model writes today: nn.Linear projections, RMSNorm and rotary embedding from elementwise
operations, attention as two matmuls and a softmax, a loop over the experts that have tokens (index, three
products, index_add), cross entropy, torch.optim.AdamW. One thread, fp32; prints one JSON line: medians over
--steps. Neither this nor step_bench clips gradients or reads files inside the measured step's products.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

CASES = {
    "d256": dict(hidden=256, inter=512, layers=6, heads=8, kv_heads=4, head_dim=32, experts=8, top_k=2, sequences=16),
    "d512": dict(hidden=512, inter=384, layers=4, heads=8, kv_heads=4, head_dim=64, experts=32, top_k=4, sequences=8),
}
VOCABULARY, SEQUENCE = 256, 256


class RmsNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def turned(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.size = c["heads"], c["kv_heads"], c["head_dim"]
        self.q = nn.Linear(c["hidden"], self.heads * self.size, bias=False)
        self.k = nn.Linear(c["hidden"], self.kv_heads * self.size, bias=False)
        self.v = nn.Linear(c["hidden"], self.kv_heads * self.size, bias=False)
        self.o = nn.Linear(self.heads * self.size, c["hidden"], bias=False)
        self.q_norm, self.k_norm = RmsNorm(self.size), RmsNorm(self.size)

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        split = lambda y: y.view(b, t, -1, self.size)
        q = turned(self.q_norm(split(self.q(x))).transpose(1, 2), cos, sin)
        k = turned(self.k_norm(split(self.k(x))).transpose(1, 2), cos, sin)
        v = split(self.v(x)).transpose(1, 2)
        times = self.heads // self.kv_heads
        k, v = (y.repeat_interleave(times, dim=1) for y in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) * self.size**-0.5 + mask
        mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.o(mixed.transpose(1, 2).reshape(b, t, -1))


class Expert(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = nn.Linear(c["hidden"], c["inter"], bias=False)
        self.up = nn.Linear(c["hidden"], c["inter"], bias=False)
        self.down = nn.Linear(c["inter"], c["hidden"], bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class SparseBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.top_k = c["top_k"]
        self.router = nn.Linear(c["hidden"], c["experts"], bias=False)
        self.experts = nn.ModuleList(Expert(c) for _ in range(c["experts"]))

    def forward(self, x):
        rows = x.reshape(-1, x.size(-1))
        weights, chosen = torch.topk(F.softmax(self.router(rows), dim=-1), self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for e in chosen.unique().tolist():
            token, slot = torch.where(chosen == e)
            out.index_add_(0, token, self.experts[e](rows[token]) * weights[token, slot, None])
        return out.view_as(x)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.before, self.after = RmsNorm(c["hidden"]), RmsNorm(c["hidden"])
        self.attention, self.block = Attention(c), SparseBlock(c)

    def forward(self, x, cos, sin, mask):
        x = x + self.attention(self.before(x), cos, sin, mask)
        return x + self.block(self.after(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, c["hidden"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.norm = RmsNorm(c["hidden"])
        self.head = nn.Linear(c["hidden"], VOCABULARY, bias=False)
        frequency = 1e6 ** (-torch.arange(0, c["head_dim"], 2) / c["head_dim"])
        angle = torch.outer(torch.arange(SEQUENCE), frequency).repeat(1, 2)
        self.cos, self.sin = angle.cos(), angle.sin()
        self.mask = torch.full((SEQUENCE, SEQUENCE), float("-inf")).triu(1)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, default="d256")
    parser.add_argument("--steps", type=int, default=3, help="measured steps (default 3)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    case = CASES[options.case]
    model = Model(case)
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    seconds = []
    for step in range(options.steps + 2):
        tokens = torch.randint(VOCABULARY, (case["sequences"], SEQUENCE + 1))
        begin = time.perf_counter()
        loss = F.cross_entropy(model(tokens[:, :-1]).reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step >= 2:
            seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    print(json.dumps({"case": options.case, "step_ms": 1e3 * median, "loss": loss.item(),
                      "tokens_per_s": case["sequences"] * SEQUENCE / median}))


if __name__ == "__main__":
    main()
