"""What tests share: numbers from a seed, closeness, tensors that lie awkwardly, plain formulas."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "python"

# Of float32: sums of some hundred products, each rounded once. Of bfloat16: a result is rounded to 8 bits.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
DTYPES = (torch.float32, torch.bfloat16)


def difference(got, wanted):
    """The largest difference over the largest number; both empty: 0."""
    assert tuple(got.shape) == tuple(wanted.shape), f"shape {tuple(got.shape)}, not {tuple(wanted.shape)}"
    if isinstance(got, torch.Tensor):
        got, wanted = got.detach().double().numpy(), wanted.detach().double().numpy()
    if not wanted.size:
        return 0.0
    assert np.isfinite(got).all(), "numbers that are not finite"
    return float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def same(got, wanted):
    """Bit for bit."""
    return got.dtype == wanted.dtype and got.shape == wanted.shape and torch.equal(got, wanted)


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + 17 * len(shape))).to(dtype)


def unaligned(tensor):
    """The same numbers at an address that is a multiple of their size and of nothing more."""
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    moved = room[1:].view(tensor.shape)
    return moved.copy_(tensor.detach())


def strided(tensor):
    """The same numbers in rows that have a gap behind them."""
    room = torch.zeros(*tensor.shape[:-1], tensor.size(-1) + 3, dtype=tensor.dtype)
    return room[..., :tensor.size(-1)].copy_(tensor.detach())


def transposed(tensor):
    """The same numbers with a last stride that is not 1."""
    if tensor.dim() < 2:
        return tensor.detach().repeat_interleave(2)[::2]
    return tensor.detach().transpose(-1, -2).contiguous().transpose(-1, -2)


def negated(tensor):
    """The same numbers, which lie in memory with the other sign."""
    return torch._neg_view(-tensor.detach())


LAYOUTS = {"as it is": lambda t: t.detach().clone(), "unaligned": unaligned, "strided": strided,
           "transposed": transposed, "negated": negated}


def gradients(function, tensors, seed=99):
    """Outputs and the gradients of tensors, for a gradient of the outputs from the seed."""
    leaves = [t.detach().requires_grad_() if t.is_floating_point() else t for t in tensors]
    outputs = function(*leaves)
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    d_outputs = [random(*y.shape, dtype=torch.float64, seed=seed + i).to(y.dtype) for i, y in enumerate(outputs)]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return [y.detach() for y in outputs] + list(torch.autograd.grad(outputs, wanted, d_outputs, allow_unused=True))


def plain_gmm(x, weight, counts):
    return torch.cat([rows @ w for rows, w in zip(x.split(counts.tolist()), weight)])


def activation(kind):
    functional = torch.nn.functional
    return {"silu": functional.silu, "gelu": functional.gelu,
            "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh")}[kind]


def plain_swiglu(gate_up, kind="silu"):
    gate, up = gate_up.chunk(2, dim=-1)
    if kind == "gpt_oss":
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)
    return activation(kind)(gate) * up


def plain_rmsnorm(x, weight, eps, offset=0.0, gate=None):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (offset + weight)
    return y if gate is None else y * torch.nn.functional.silu(gate)


def plain_experts(x, topk_idx, topk_weights, gate_up, down, kind="silu"):
    y = torch.zeros_like(x)
    for expert in range(gate_up.size(0)):
        share = (topk_weights * (topk_idx == expert)).sum(-1, keepdim=True)
        y = y + share * (plain_swiglu(x @ gate_up[expert].T, kind) @ down[expert].T)
    return y


def python(code, **environment):
    """What a process of its own prints."""
    variables = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{Path(__file__).parent}", **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, timeout=600,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
