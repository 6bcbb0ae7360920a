#!/usr/bin/env python3
"""How long do the experts of a layer take, forward and backward, in Hugging Face's own class and in ours?

    export OMP_NUM_THREADS=1 PYTHONPATH=src/python MOELOOM_LIBRARY=build/libmoeloom_c.so.1
    bench/beside.py --rounds 7 --ours "PYTHON bench/python/experts_block.py --way ours --rows 128 --experts 32" \\
        --rival "PYTHON bench/python/experts_block.py --way grouped_mm --rows 128 --experts 32"

PYTHON has transformers 5 for grouped_mm and eager (Qwen3MoeExperts with that experts_implementation), transformers
4.57 for list (Qwen3MoeSparseMoeBlock, a loop over a list of MLPs) and patched_list (the same after apply_kernel), torch
alone for ours (ExpertsFunction with kept gradients). Weights, tokens and routing are the same in all; the two of a list
also compute the router, which is less than 1 %. Before it is timed each is compared with the plain formula under
autograd: y and the gradients of tokens, routing weights (list: router) and both weights. As in training gradients are
None before each step. One thread, fp32; prints one JSON line of medians: total_ms, and cpu_ms, which says more on a
busy machine.
"""
import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn import functional as F

# Rows an expert and experts -> hidden, intermediate, experts a token.
SHAPES = {(128, 32): (512, 384, 4), (128, 8): (1024, 1792, 2), (32, 128): (1024, 384, 8), (8, 32): (512, 384, 4)}


class Case:
    """Weights, tokens and their routing, all from one seed."""

    def __init__(self, rows, experts):
        self.experts, (self.hidden, self.intermediate, self.top_k) = experts, SHAPES[rows, experts]
        torch.manual_seed(0)
        self.x = torch.randn(rows * experts // self.top_k, self.hidden)
        self.dy = torch.randn_like(self.x)
        self.router = torch.randn(experts, self.hidden) * self.hidden**-0.5
        self.gate_up = torch.randn(experts, 2 * self.intermediate, self.hidden) * self.hidden**-0.5
        self.down = torch.randn(experts, self.hidden, self.intermediate) * self.intermediate**-0.5

    def routing(self, x, router):
        """Experts and weights [T, K] of each token, as Qwen3-MoE has them."""
        weights, chosen = torch.topk(F.softmax(x @ router.T, dim=-1), self.top_k, dim=-1)
        return chosen, weights / weights.sum(-1, keepdim=True)

    def config(self, **settings):
        from transformers import Qwen3MoeConfig
        return Qwen3MoeConfig(hidden_size=self.hidden, moe_intermediate_size=self.intermediate, hidden_act="silu",
                              num_experts=self.experts, num_experts_per_tok=self.top_k, norm_topk_prob=True, **settings)


class Stacks:
    """Of y, x, routing weights and stacks: the plain formula, whose weights and gradients others must have."""

    def __init__(self, case):
        self.chosen, weights = case.routing(case.x, case.router)
        self.x, self.weights = case.x.clone().requires_grad_(), weights.requires_grad_()
        self.gate_up, self.down = (torch.nn.Parameter(t.clone()) for t in (case.gate_up, case.down))

    def forward(self):
        y = torch.zeros_like(self.x)
        # Not weight[expert], whose gradient would be a whole stack of zeros for each.
        for expert, (gate_up, down) in enumerate(zip(self.gate_up.unbind(), self.down.unbind())):
            token, slot = torch.where(self.chosen == expert)
            gate, up = (self.x[token] @ gate_up.T).chunk(2, dim=-1)
            rows = (F.silu(gate) * up) @ down.T
            y = y.index_add(0, token, rows * self.weights[token, slot, None])
        return y

    def leaves(self):
        return [self.x, self.weights, self.gate_up, self.down]

    def gradients(self):
        return [leaf.grad for leaf in self.leaves()]


class Ours(Stacks):
    def __init__(self, case):
        from moeloom.torch import ExpertWeights
        super().__init__(case)
        self.experts = ExpertWeights(self.gate_up, self.down)

    def forward(self):
        from moeloom.torch import ExpertsFunction
        return ExpertsFunction.apply(self.x, self.chosen, self.weights, self.experts)


class HuggingFace5(Stacks):
    def __init__(self, case, implementation):
        from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts
        super().__init__(case)
        self.experts = Qwen3MoeExperts(case.config(experts_implementation=implementation))
        if self.experts.config._experts_implementation != implementation:
            sys.exit(f"experts_implementation is {self.experts.config._experts_implementation}, not {implementation}")
        self.experts.gate_up_proj, self.experts.down_proj = self.gate_up, self.down

    def forward(self):
        return self.experts(self.x, self.chosen, self.weights)


class RoutedStacks(Stacks):
    """The plain formula with its router, for a block that has one."""

    def __init__(self, case):
        super().__init__(case)
        self.router, self.routing = torch.nn.Parameter(case.router.clone()), case.routing

    def forward(self):
        _, self.weights = self.routing(self.x, self.router)
        return super().forward()

    def leaves(self):
        return [self.x, self.router, self.gate_up, self.down]


class HuggingFace4(RoutedStacks):
    def __init__(self, case, patched):
        from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock
        super().__init__(case)
        self.block = Qwen3MoeSparseMoeBlock(case.config())
        self.block.gate.weight = self.router
        with torch.no_grad():
            for expert, gate_up, down in zip(self.block.experts, case.gate_up, case.down):
                expert.gate_proj.weight.copy_(gate_up[:case.intermediate])
                expert.up_proj.weight.copy_(gate_up[case.intermediate:])
                expert.down_proj.weight.copy_(down)
        if patched:
            from moeloom.torch import apply_kernel
            self.block.config = case.config()
            apply_kernel("fused_moe", model=self.block)

    def forward(self):
        return self.block(self.x[None])[0][0]

    def leaves(self):
        return [self.x, *self.block.parameters()]

    def gradients(self):
        experts = self.block.experts
        gate_up = [torch.cat([e.gate_proj.weight.grad, e.up_proj.weight.grad]) for e in experts]
        down = [e.down_proj.weight.grad for e in experts]
        return [self.x.grad, self.router.grad, torch.stack(gate_up), torch.stack(down)]


WAYS = {"ours": (Ours, Stacks), "grouped_mm": (lambda case: HuggingFace5(case, "grouped_mm"), Stacks),
        "eager": (lambda case: HuggingFace5(case, "eager"), Stacks),
        "list": (lambda case: HuggingFace4(case, False), RoutedStacks),
        "patched_list": (lambda case: HuggingFace4(case, True), RoutedStacks)}


def step(block, dy):
    """y, seconds on the wall, seconds of the processor."""
    for leaf in block.leaves():
        leaf.grad = None
    wall, processor = time.perf_counter(), time.process_time()
    y = block.forward()
    y.backward(dy)
    return y, time.perf_counter() - wall, time.process_time() - processor


def require_equal(block, plain, dy):
    """Twice, for the second step has the memory of the first. Sums have up to 3,584 products, each rounded once."""
    expected = [step(plain, dy)[0].detach(), *plain.gradients()]
    for _ in range(2):
        found = [step(block, dy)[0].detach(), *block.gradients()]
        for name, got, wanted in zip(("y", "x", "routing", "gate_up", "down"), found, expected):
            error = ((got - wanted).abs().max() / wanted.abs().max()).item()
            if not error <= 1e-5:
                sys.exit(f"{name} differs by {error} of its largest number")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--rows", type=int, default=128, help="of an expert (default 128)")
    parser.add_argument("--experts", type=int, default=32, help="(default 32)")
    parser.add_argument("--samples", type=int, default=11, help="measured steps (default 11)")
    options = parser.parse_args()
    if (options.rows, options.experts) not in SHAPES:
        parser.error(f"known --rows and --experts: {', '.join(f'{rows} {experts}' for rows, experts in SHAPES)}")
    torch.set_num_threads(1)
    case = Case(options.rows, options.experts)
    make, plain = WAYS[options.way]
    block = make(case)
    require_equal(block, plain(case), case.dy)
    _, wall, processor = zip(*(step(block, case.dy) for _ in range(options.samples + 2)))
    print(json.dumps({"way": options.way, "rows": options.rows, "experts": options.experts, "torch": torch.__version__,
                      "total_ms": 1e3 * statistics.median(wall[2:]), "cpu_ms": 1e3 * statistics.median(processor[2:])}))


if __name__ == "__main__":
    main()
