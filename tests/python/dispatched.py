"""What programs of test_dispatch.py share: layers of experts, and the same on one process.

Tokens of a rank are functions of its number, so every rank computes the whole by itself.
"""

import copy

import torch
from hf_classes import HIDDEN
from support import difference, random
from torch import nn

import moeloom
from moeloom._library import library
from moeloom.torch._shares import shard_list, shard_stacks

EXPERTS, TOP_K, WIDTH = 5, 2, 8


def mesh_of_all():
    """All ranks of the job share the experts."""
    with moeloom.mesh() as ranks:
        size = ranks.size
    return moeloom.mesh(ep=size)


def done(mesh):
    mesh.barrier()
    if mesh.rank == 0:
        print("all equal")
    mesh.close()
    library().ml_mpi_end()


def inputs(rank, seed=0, top_k=TOP_K):
    """x [T, D], topk_idx [T, K], topk_weights [T, K], dy [T, D]: without a token on rank 1, where nobody chose expert 0
    in seed 1, all chose it first in seed 2, and nobody one of the first three in seed 3."""
    tokens = 0 if rank == 1 else 6 + 3 * rank
    scores = random(tokens, EXPERTS, seed=7 * rank + seed)
    scores[:, :3 if seed == 3 else 1] += {0: 0, 2: 1e3}.get(seed, -1e3)
    idx = torch.topk(scores, top_k)[1]
    if seed == 0:
        idx[:1, 0] = -1
    weights = torch.softmax(random(tokens, top_k, seed=rank + 3), -1)
    return random(tokens, HIDDEN, seed=rank), idx, weights, random(tokens, HIDDEN, seed=rank + 50)


def passed(layer, parameters, given, dtype=torch.float32):
    """One forward and backward of layer(x, idx, weights) -> y, and gradients of x, weights, and parameters."""
    x, idx, weights, dy = given
    x, weights = (t.detach().to(dtype).requires_grad_() for t in (x, weights))
    for parameter in parameters:
        parameter.grad = None
    y = layer(x, idx, weights)
    y.backward(dy.to(y.dtype))
    return [y.detach(), x.grad, weights.grad, *(p.grad for p in parameters)]


def whole(layer, parameters, mesh, seed=0, dtype=torch.float32):
    """By one process: y and gradients of this rank's tokens; gradients of parameters are of all ranks' tokens."""
    mine, sums = None, None
    for rank in range(mesh.size):
        found = passed(layer, parameters, inputs(rank, seed), dtype)
        grads = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found[3:])]
        sums = grads if sums is None else [a + b for a, b in zip(sums, grads)]
        mine = found[:3] if rank == mesh.rank else mine
    return [*mine, *sums]


def equal(got, wanted, tolerance, what):
    assert len(got) == len(wanted), what
    for number, (mine, theirs) in enumerate(zip(got, wanted)):
        mine = torch.zeros_like(theirs) if mine is None else mine
        gap = difference(mine, theirs)
        assert gap <= tolerance, f"{what}: tensor {number} differs by {gap}"


class GptOss(nn.Module):
    """Stacks [E, D, 2F] and [E, F, D] with biases, gate and up in turns."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.num_experts = EXPERTS
        self.gate_up_proj = nn.Parameter(0.3 * torch.randn(EXPERTS, HIDDEN, 2 * WIDTH))
        self.gate_up_proj_bias = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH))
        self.down_proj = nn.Parameter(0.3 * torch.randn(EXPERTS, WIDTH, HIDDEN))
        self.down_proj_bias = nn.Parameter(torch.randn(EXPERTS, HIDDEN))

    def one(self, expert, x):
        gate, up = (x @ self.gate_up_proj[expert] + self.gate_up_proj_bias[expert]).unflatten(-1, (-1, 2)).unbind(-1)
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return (gate * torch.sigmoid(1.702 * gate) * (up + 1)) @ self.down_proj[expert] + self.down_proj_bias[expert]

    def forward(self, hidden_states, router_indices, routing_weights):
        y = torch.zeros_like(hidden_states)
        for expert in range(self.num_experts):
            token, slot = torch.where(router_indices == expert)
            y = y.index_add(0, token, self.one(expert, hidden_states[token]) * routing_weights[token, slot, None])
        return y


class Gated(GptOss):
    """Qwen3-VL's of transformers 4: silu, without biases; scales_inputs: as Llama 4."""

    def __init__(self, scales_inputs=False):
        super().__init__()
        del self.gate_up_proj_bias, self.down_proj_bias
        self.act_fn, self.scales_inputs = nn.SiLU(), scales_inputs

    def one(self, expert, x):
        gate, up = (x @ self.gate_up_proj[expert]).chunk(2, -1)
        return (nn.functional.silu(gate) * up) @ self.down_proj[expert]

    def forward(self, hidden_states, router_indices, routing_weights):
        if not self.scales_inputs:
            return super().forward(hidden_states, router_indices, routing_weights)
        y = torch.zeros_like(hidden_states)
        for expert in range(self.num_experts):
            token, slot = torch.where(router_indices == expert)
            y = y.index_add(0, token, self.one(expert, hidden_states[token] * routing_weights[token, slot, None]))
        return y


class Lora(nn.Module):
    """A linear layer with an adapter, as PEFT puts it in the place of one."""

    def __init__(self, base):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.a, self.b = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.b(self.a(x))


def sharded(module, mesh):
    """A copy with this rank's experts alone."""
    twin = copy.deepcopy(module)
    for part in (twin, *twin.children()):
        if isinstance(part, nn.ModuleList):
            shard_list(part, mesh)
        elif any(p.dim() == 3 for p in part.parameters(recurse=False)):
            shard_stacks(part, EXPERTS, mesh)
    return twin


def own(tensors, mesh):
    """Of stacks' gradients this rank's rows."""
    begin, count = mesh.experts_of(EXPERTS)
    return [t[begin:begin + count] for t in tensors]

