"""Rows to experts of other ranks under autograd: every rank computes the whole by itself and compares."""

import unittest

from ranks import succeeds

SETUP = """
import torch
import moeloom, moeloom.torch as mt
from dispatched import *
from hf_classes import DeepseekV3MoE
from moeloom.torch._blocks import ListedMethod
from moeloom.torch._product_blocks import GptOssExperts, InOutExperts
from moeloom.torch._dispatch import CombineFunction, DispatchFunction, Layer, through
from moeloom.torch._lists import Projections
from support import same
from torch.utils.checkpoint import checkpoint
mesh = mesh_of_all()
layer = Layer(mesh, EXPERTS, 3)
"""

ROWS = """
def scaled(x, idx, weights):
    rows, row_weights, counts, trip = DispatchFunction.apply(x, idx, weights, layer)
    assert counts.dtype == torch.int64 and int(counts.sum()) == rows.size(0) == row_weights.size(0)
    return CombineFunction.apply(rows * rows * row_weights.unsqueeze(1), trip, row_weights)

def plainly(x, idx, weights):
    return (x * x) * (weights.square() * (idx >= 0)).sum(1, keepdim=True)

for seed in range(4):
    wanted = passed(plainly, [], inputs(mesh.rank, seed))
    equal(passed(scaled, [], inputs(mesh.rank, seed)), wanted, 1e-6, f"seed {seed}")
    for reentrant in (False, True):
        again = lambda *given: checkpoint(scaled, *given, use_reentrant=reentrant)
        equal(passed(again, [], inputs(mesh.rank, seed)), wanted, 1e-6, f"checkpoint {reentrant}")
equal(passed(scaled, [], inputs(mesh.rank), torch.bfloat16), passed(plainly, [], inputs(mesh.rank)), 0.02, "bf16")

# Rows lie by expert, then source rank, then token.
x, idx, weights, dy = inputs(mesh.rank)
rows, row_weights, counts, trip = DispatchFunction.apply(x, idx, weights, layer)
begin, count = mesh.experts_of(EXPERTS)
expected = [tokens[(chosen == expert).any(1)] for expert in range(begin, begin + count)
            for tokens, chosen, *_ in map(inputs, range(mesh.size))]
assert same(rows, torch.cat(expected))
with torch.no_grad():
    assert not scaled(x.requires_grad_(), idx, weights).requires_grad

# Of a plan any number of trips; a backward that nothing was kept for is told.
x = x.detach().requires_grad_()
rows, row_weights, counts, trip = DispatchFunction.apply(x, idx, weights, layer)
y = CombineFunction.apply(rows, trip)
first, = torch.autograd.grad(y, x, dy)
second, = torch.autograd.grad(CombineFunction.apply(rows, trip), x, dy, retain_graph=True)
assert same(first, second) and same(first, torch.autograd.grad(y, x, dy)[0])
y = CombineFunction.apply(rows, trip, row_weights)
torch.autograd.grad(y, rows, dy)
try:
    torch.autograd.grad(y, rows, dy)
    raise AssertionError("a second backward")
except moeloom.SpentError as error:
    assert "backward was called already" in str(error)
"""

BLOCKS = """
def patched(module, patch):
    twin = sharded(module, mesh)
    patch(twin).install()
    return twin

# Product by product, of stacks.
for name, module, patch in (
        ("gpt-oss", GptOss(), lambda twin: GptOssExperts(twin, "gpt_oss", mesh, "kept", False)),
        ("in, out", Gated(), lambda twin: InOutExperts(twin, "silu", mesh, "kept"))):
    twin = patched(module, patch)
    experts = twin if name == "gpt-oss" else lambda x, idx, weights: twin(
        x.unsqueeze(0), torch.zeros(x.size(0), EXPERTS).scatter(1, idx, weights), idx)[0]
    for seed in (1, 2, 3):
        wanted = whole(module, list(module.parameters()), mesh, seed)
        wanted[3:] = own(wanted[3:], mesh)
        equal(passed(experts, list(twin.parameters()), inputs(mesh.rank, seed)), wanted, 5e-6, f"{name}, {seed}")
    if name == "gpt-oss":
        got = passed(twin.bfloat16(), list(twin.parameters()), inputs(mesh.rank, 3), torch.bfloat16)
        equal(got, wanted, 0.05, "gpt-oss in bf16")
module = Gated(scales_inputs=True)
twin = sharded(module, mesh)
patch = InOutExperts(twin, "silu", mesh, "kept")
inwards = lambda x, idx, weights: through(patch.rows, x, idx, weights, patch.place(), scales_inputs=True)
wanted = whole(module, list(module.parameters()), mesh)
wanted[3:] = own(wanted[3:], mesh)
equal(passed(inwards, list(twin.parameters()), inputs(mesh.rank)), wanted, 5e-6, "scaled inputs")

# Of a list: adapters, which no stack can hold, and an expert that nobody chose.
torch.manual_seed(2)
block = DeepseekV3MoE()
for expert in block.experts:
    expert.gate_proj, expert.down_proj = Lora(expert.gate_proj), Lora(expert.down_proj)
    expert.requires_grad_(False)
    expert.gate_proj.a.requires_grad_(True), expert.down_proj.b.requires_grad_(True)
twin = patched(block, lambda twin: ListedMethod(twin, "silu", mesh, "kept", Projections("gate_proj", "up_proj",
                                                                                       "down_proj"), "", "", False))
trained = {name: p for name, p in block.experts.named_parameters() if p.requires_grad}
mine = {name: p for name, p in twin.experts.named_parameters() if p.requires_grad}
assert set(mine) == {name for name in trained if int(name.split(".")[0]) in range(begin, begin + count)}
for seed in (0, 1, 3):
    wanted = whole(block.moe, list(trained.values()), mesh, seed)
    wanted[3:] = [grad for name, grad in zip(trained, wanted[3:]) if name in mine]
    equal(passed(twin.moe, list(mine.values()), inputs(mesh.rank, seed)), wanted, 5e-6, f"adapters, {seed}")
    if seed == 1 and begin == 0 and mesh.size > 1:
        assert twin.experts[0].down_proj.b.weight.grad is None

# Nothing before the experts has a gradient: a rank whose experts have no row goes back with the others.
x, idx, weights, dy = inputs(mesh.rank)
twin.moe(x, torch.full_like(idx, EXPERTS - 1), weights).backward(dy)
"""

BUFFER = """
class OnBuffer(torch.nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.buffer, self.experts = mt.Buffer(mesh), experts

    def forward(self, x, idx, weights):
        got, local, w, counts, handle = self.buffer.dispatch(x, idx, weights, EXPERTS)
        assert local.dtype == counts.dtype == torch.int64 and got.dtype == x.dtype and w.dtype == weights.dtype
        assert bool(((local >= 0).any(1)).all()) and bool((w[local < 0] == 0).all())
        assert torch.equal(counts, torch.tensor([int((local == e).sum()) for e in range(count)], dtype=torch.int64))
        y = torch.zeros_like(got)
        for expert in range(count):
            row, slot = torch.where(local == expert)
            if row.numel():
                y = y.index_add(0, row, (self.experts.one(expert, got[row]) * w[row, slot, None]).to(y.dtype))
        return self.buffer.combine(y, handle)

module = GptOss()
on_buffer = OnBuffer(sharded(module, mesh))
for seed in range(4):
    wanted = whole(module, list(module.parameters()), mesh, seed)
    wanted[3:] = own(wanted[3:], mesh)
    equal(passed(on_buffer, list(on_buffer.parameters()), inputs(mesh.rank, seed)), wanted, 5e-6, f"buffer, {seed}")
x, idx, weights, _ = inputs(mesh.rank)
got, local, w, counts, handle = mt.Buffer(mesh).dispatch(x.bfloat16(), idx, weights.bfloat16(), EXPERTS)
assert same(got, torch.cat([tokens[((ids >= begin) & (ids < begin + count)).any(1)].bfloat16()
                            for tokens, ids, *_ in map(inputs, range(mesh.size))]))
here = [(ids >= begin) & (ids < begin + count) for _, ids, *_ in map(inputs, range(mesh.size))]
ids = torch.cat([torch.where(mine, each[1] - begin, torch.full_like(each[1], -1))[mine.any(1)]
                 for mine, each in zip(here, map(inputs, range(mesh.size)))])
assert torch.equal(local, ids), (local, ids)
# Three experts of 1000, whose numbers bf16 does not have.
far = torch.tensor([[999, 613, 257]])
_, local, _, counts, _ = mt.Buffer(mesh).dispatch(torch.ones(1, 4).bfloat16(), far, torch.ones(1, 3).bfloat16(), 1000)
first, here = mesh.experts_of(1000)
expected = [e - first if first <= e < first + here else -1 for e in far[0].tolist()]
assert local.tolist() == ([expected] * mesh.size if max(expected) >= 0 else []), local
assert counts.numel() == here and int(counts.sum()) == mesh.size * sum(e >= 0 for e in expected)
try:
    mt.Buffer(mesh).dispatch(torch.ones(1, 4), far, torch.ones(1, 3), 900)
    raise AssertionError("an expert that there is not")
except moeloom.ShapeError as error:
    assert "expected 0 to num_experts - 1 = 899" in str(error)
"""


class Dispatch(unittest.TestCase):
    def runs(self, ranks):
        self.assertEqual(succeeds(ranks, SETUP + ROWS + BLOCKS + BUFFER + "done(mesh)").strip(), "all equal")

    def test_by_itself(self):
        self.runs(1)

    def test_on_two_ranks(self):
        self.runs(2)

    def test_on_three_ranks(self):
        self.runs(3)


if __name__ == "__main__":
    unittest.main()
