#!/usr/bin/env python3
"""The peer of step_bench: a whole training step of the same Qwen3-MoE shape in eager PyTorch (Debian: python3-torch).

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 /usr/bin/python3 bench/train/torch_step.py --case d256
    PYTHONPATH=src/python MOELOOM_LIBRARY=build/libmoeloom_c.so.1 ... torch_step.py --case d256 --patched

What a user of a Python model writes today: nn.Linear projections, RMSNorm and rotary embedding from elementwise
operations, attention as two matmuls and a softmax, a loop over the experts that have tokens (index, three
products, index_add), cross entropy, torch.optim.AdamW. One thread, fp32; prints one JSON line: medians over
--steps. Neither this nor step_bench clips gradients or reads files inside the measured step's products.

--patched is the same with two lines more: moeloom.torch's apply_default_kernels, which knows the classes by the names
that Hugging Face gave them, and its AdamW. Loss and gradients of the patched model are compared with those of the
model as it was, and the loss after an update, before anything is timed.
"""
import argparse
import copy
import json
import statistics
import sys
import time
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

CASES = {
    "d256": dict(hidden=256, inter=512, layers=6, heads=8, kv_heads=4, head_dim=32, experts=8, top_k=2, sequences=16),
    "d512": dict(hidden=512, inter=384, layers=4, heads=8, kv_heads=4, head_dim=64, experts=32, top_k=4, sequences=8),
}
VOCABULARY, SEQUENCE = 256, 256


class Qwen3MoeRMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.variance_epsilon = 1e-6

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def turned(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def apply_rotary_pos_emb(q, k, cos, sin):
    """q [B, H, S, d], k [B, Hk, S, d], cos and sin [1, S, d]."""
    return turned(q, cos, sin), turned(k, cos, sin)


class Qwen3MoeAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.size = c["heads"], c["kv_heads"], c["head_dim"]
        self.q = nn.Linear(c["hidden"], self.heads * self.size, bias=False)
        self.k = nn.Linear(c["hidden"], self.kv_heads * self.size, bias=False)
        self.v = nn.Linear(c["hidden"], self.kv_heads * self.size, bias=False)
        self.o = nn.Linear(self.heads * self.size, c["hidden"], bias=False)
        self.q_norm, self.k_norm = Qwen3MoeRMSNorm(self.size), Qwen3MoeRMSNorm(self.size)

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        split = lambda y: y.view(b, t, -1, self.size)
        q, k = (norm(split(y)).transpose(1, 2) for norm, y in ((self.q_norm, self.q(x)), (self.k_norm, self.k(x))))
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        v = split(self.v(x)).transpose(1, 2)
        times = self.heads // self.kv_heads
        k, v = (y.repeat_interleave(times, dim=1) for y in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) * self.size**-0.5 + mask
        mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.o(mixed.transpose(1, 2).reshape(b, t, -1))


class Qwen3MoeMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden"], c["inter"], bias=False)
        self.up_proj = nn.Linear(c["hidden"], c["inter"], bias=False)
        self.down_proj = nn.Linear(c["inter"], c["hidden"], bias=False)
        self.act_fn = F.silu

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Qwen3MoeSparseMoeBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.top_k, self.norm_topk_prob = c["top_k"], True
        self.gate = nn.Linear(c["hidden"], c["experts"], bias=False)
        self.experts = nn.ModuleList(Qwen3MoeMLP(c) for _ in range(c["experts"]))

    def forward(self, x):
        rows = x.reshape(-1, x.size(-1))
        logits = self.gate(rows)
        weights, chosen = torch.topk(F.softmax(logits, dim=-1), self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for e in chosen.unique().tolist():
            token, slot = torch.where(chosen == e)
            out.index_add_(0, token, self.experts[e](rows[token]) * weights[token, slot, None])
        return out.view_as(x), logits


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.before, self.after = Qwen3MoeRMSNorm(c["hidden"]), Qwen3MoeRMSNorm(c["hidden"])
        self.attention, self.block = Qwen3MoeAttention(c), Qwen3MoeSparseMoeBlock(c)

    def forward(self, x, cos, sin, mask):
        x = x + self.attention(self.before(x), cos, sin, mask)
        return x + self.block(self.after(x))[0]


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = SimpleNamespace(model_type="qwen3_moe")
        self.embed = nn.Embedding(VOCABULARY, c["hidden"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.norm = Qwen3MoeRMSNorm(c["hidden"])
        self.head = nn.Linear(c["hidden"], VOCABULARY, bias=False)
        frequency = 1e6 ** (-torch.arange(0, c["head_dim"], 2) / c["head_dim"])
        angle = torch.outer(torch.arange(SEQUENCE), frequency).repeat(1, 2)[None]
        self.cos, self.sin = angle.cos(), angle.sin()
        self.mask = torch.full((SEQUENCE, SEQUENCE), float("-inf")).triu(1)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        return self.head(self.norm(x))


def make_model(case):
    torch.manual_seed(0)
    model = Model(case)
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.02)
    return model


def random_tokens(sequences):
    return torch.randint(VOCABULARY, (sequences, SEQUENCE + 1))


def torch_adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)


def moeloom_adamw(model):
    from moeloom.torch import AdamW
    return AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


def patch(model):
    """Every kernel has a place in this model; it is an error if one was left alone."""
    from moeloom.torch import apply_default_kernels, reports
    model = apply_default_kernels(model)
    left = [report for report in reports(model) if not report.applied]
    if left:
        sys.exit(f"not patched: {left}")
    return model


def require_equal(model):
    """Patches a copy of the model; ends the program where it computes something else.

    Of gradients the sums are some thousand products long; an update divides by their sizes, however small.
    """
    tokens, losses = random_tokens(1), []
    plain, patched = copy.deepcopy(model), patch(copy.deepcopy(model))
    optimizers = torch_adamw(plain), moeloom_adamw(patched)
    for each in (plain, patched):
        losses.append([loss_of(each, tokens)])
        losses[-1][0].backward()
    for (name, expected), found in zip(plain.named_parameters(), patched.parameters()):
        error = (found.grad - expected.grad).abs().max() / expected.grad.abs().max() if expected.grad is not None else 0
        if not error <= 1e-4:
            sys.exit(f"gradient of {name} differs by {error} of its largest number")
    for each, optimizer, own in zip((plain, patched), optimizers, losses):
        optimizer.step()
        own.append(loss_of(each, tokens))
    for expected, found, tolerance in zip(*losses, (1e-6, 1e-4)):
        if not abs(found - expected) <= tolerance * expected:
            sys.exit(f"loss {found}, not {expected}")


def timed_step(model, optimizer, tokens):
    """Loss, seconds on the wall, seconds of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    loss = loss_of(model, tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item(), time.perf_counter() - wall, time.process_time() - processor


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, default="d256")
    parser.add_argument("--steps", type=int, default=3, help="measured steps (default 3)")
    parser.add_argument("--patched", action="store_true", help="with moeloom's kernels and its AdamW")
    options = parser.parse_args()
    torch.set_num_threads(1)
    case = CASES[options.case]
    model = make_model(case)
    if options.patched:
        require_equal(model)
        model = patch(model)
    optimizer = moeloom_adamw(model) if options.patched else torch_adamw(model)
    torch.manual_seed(1)
    steps = [timed_step(model, optimizer, random_tokens(case["sequences"])) for _ in range(options.steps + 2)]
    losses, wall, processor = zip(*steps)
    median = statistics.median(wall[2:])
    print(json.dumps({"case": options.case, "patched": options.patched, "torch": torch.__version__,
                      "step_ms": 1e3 * median, "cpu_ms": 1e3 * statistics.median(processor[2:]), "loss": losses[-1],
                      "tokens_per_s": case["sequences"] * SEQUENCE / median}))


if __name__ == "__main__":
    main()
