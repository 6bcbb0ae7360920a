"""What a model may not do any more once ranks share its experts, and what it goes on to do."""

import tempfile
import unittest

import torch

from ranks import succeeds

BEGINNING = """
    import os, sys, torch, hf_classes, moeloom, moeloom.torch as mt
    from pathlib import Path
    from moeloom.torch._files import together
    from moeloom.torch._shares import local_experts
    from shared_steps import *
    from support import same
    mesh = moeloom.mesh(ep=2)
    other = moeloom.mesh(ep=1)

    def says(call, *words, kinds=moeloom.ConfigError):
        try:
            call()
        except kinds as error:
            assert all(word in str(error) for word in words), str(error)
        else:
            raise AssertionError(f"accepted; expected {words}")

    def fails(kind):
        if mesh.rank:
            raise kind("this rank")

    class LoRA(torch.nn.Module):  # as PEFT's
        def __init__(self, base):
            super().__init__()
            self.base_layer = base.requires_grad_(False)
            self.a = torch.nn.Parameter(random(4, hf_classes.HIDDEN, seed=1))
        def forward(self, x, *more):
            return self.base_layer(x, *more)
        @property
        def weight(self):
            return self.base_layer.weight
"""


class Guards(unittest.TestCase):
    def all_end(self, ranks, code, *arguments):
        out = succeeds(ranks, BEGINNING + code, *arguments)
        self.assertEqual(out.count("done"), ranks, out)

    def test_a_shared_model_has_one_mesh(self):
        """Which who gives none has too."""
        with tempfile.TemporaryDirectory() as folder:
            self.all_end(2, """
    place = Path(sys.argv[1], "at")
    for layout in ("4.x list", "5.x stack"):
        _, model = shared(layout, mesh)
        optimizer = mt.AdamW(model.parameters())
        of_this_rank(model, mesh)
        optimizer.step()
        mt.save_checkpoint(model, optimizer, place, step=mesh.rank)
        _, again = shared(layout, mesh, seed=5)
        assert mt.load_checkpoint(again, mt.AdamW(again.parameters()), place) == {"step": mesh.rank}
        assert all(same(p, again.state_dict()[n]) for n, p in model.state_dict().items())
        for call in (lambda: mt.finish_gradients(model, other), lambda: mt.save_pretrained(model, place, other),
                     lambda: mt.save_checkpoint(model, optimizer, place, other),
                     lambda: mt.load_checkpoint(model, optimizer, place, other)):
            says(call, "shared among the ranks of", "of 2, dp 0 of 1", "ep 0 of 1", "expected the same mesh, or none")
        place = place.with_name(f"of {mesh.rank}")
        for call in (lambda: mt.save_pretrained(model, place), lambda: mt.load_checkpoint(model, optimizer, place),
                     lambda: mt.save_checkpoint(model, optimizer, place)):
            says(call, "ranks name different folders: rank 0 /", "of 0, rank 1 /", "of 1; every rank names the same")
        place = place.with_name("at")
    for kind in (KeyError, moeloom.IoError, NotImplementedError):
        says(lambda: together(mesh, lambda: fails(kind)), "this rank" if mesh.rank else "rank 1", kinds=kind)
    print("done")
    """, folder)

    def test_adapters_of_experts(self):
        with tempfile.TemporaryDirectory() as folder:
            self.all_end(2, """
    # on a stack: before and after it is shared
    whole = hf_classes.model("5.x stack")
    held = whole.block.moe_experts
    whole.block.moe_experts = LoRA(held)
    says(lambda: mt.apply_kernel("fused_moe", model=whole, mesh=mesh), "on a stack of experts", "merge_and_unload()")
    assert held.down_proj.size(0) == hf_classes.EXPERTS  # nothing was given away
    _, model = shared("5.x stack", mesh)
    held = model.block.moe_experts
    model.block.moe_experts = LoRA(held)
    says(lambda: mt.finish_gradients(model), "on a stack of experts")
    class Same(torch.nn.Module):
        def forward(self, x):
            return x
    torch.nn.utils.parametrize.register_parametrization(held, "down_proj", Same())
    says(lambda: model(tokens_of(mesh.rank, 2)), "on a stack of experts")
    # in a list: PEFT reads them by state_dict()
    _, model = shared("4.x list", mesh)
    model.state_dict()
    for expert in (expert for _, expert in local_experts(model.block.experts)):
        expert.gate_proj = LoRA(expert.gate_proj)
    says(model.state_dict, "adapters are on experts that ranks share", "merge_and_unload()")
    mt.save_checkpoint(model, mt.AdamW(model.parameters()), sys.argv[1] + "/at")
    print("done")
    """, folder)

    def test_ranks_begin_with_the_same_values(self):
        """What all have, trained or frozen, and what ranks with the same experts have."""
        self.all_end(4, """
    def differs(name):
        _, model = shared("4.x list", mesh)
        model.attention.requires_grad_(False)
        for each, parameter in model.named_parameters():
            if each == name and mesh.rank == 3:
                with torch.no_grad():
                    parameter.view(-1)[-1] += 1
        return model
    for name, rank in (("norm.weight", 0), ("attention.q_proj.weight", 0), ("block.experts.4.up_proj.weight", 1)):
        says(lambda: mt.finish_gradients(differs(name)), f"{name} has other values on rank 3 than on rank {rank} ",
             "manual_seed", "load_checkpoint")
    model = differs("")
    assert mt.finish_gradients(model) == 0
    differs("")
    if mesh.rank:
        model.norm.weight.data.zero_()
    mt.finish_gradients(model)  # looks once
    print("done")
    """)

    def test_what_a_whole_optimizer_and_uneven_experts_need(self):
        self.all_end(2, """
    whole = hf_classes.model("5.x stack")
    optimizer = mt.AdamW(whole.parameters())
    whole(tokens_of(0, 2)).backward()
    optimizer.step()
    optimizer.zero_grad()
    mt.apply_kernel("fused_moe", model=whole, mesh=mesh)
    whole(tokens_of(mesh.rank, 2)).backward()
    mt.finish_gradients(whole)
    says(optimizer.step, "after the first step", "make a new optimizer")
    # 5 experts, of which each rank only knows its own
    stacks = random(5, 24, 16, seed=1), random(5, 16, 12, seed=2)
    x, topk_idx = random(7, 16, seed=3 + mesh.rank), torch.arange(14).view(7, 2) % 5
    begin, count = mesh.experts_of(5)
    mine = mt.ExpertWeights(*(stack[begin:begin + count].clone() for stack in stacks), mesh=mesh)
    y = mt.ExpertsFunction.apply(x, topk_idx, torch.ones(7, 2), mine.of(mine.gate_up, mine.down))
    assert mine.num_experts == 5
    assert difference(y, mt.ExpertsFunction.apply(x, topk_idx, torch.ones(7, 2), mt.ExpertWeights(*stacks))) < 1e-6
    print("done")
    """)

    def test_beside_ddp(self):
        if not torch.distributed.is_available():
            self.skipTest("this torch has no torch.distributed")
        self.all_end(2, """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29518")
    dist.init_process_group("gloo", rank=mesh.rank, world_size=mesh.size)
    for layout in ("4.x list", "5.x stack"):
        _, model = shared(layout, mesh)
        parallel = DDP(model)
        x = tokens_of(mesh.rank, 2)
        parallel(x).backward()
        norm = mt.finish_gradients(parallel, mesh)
        _, plain = shared(layout, mesh)
        plain(x).backward()
        assert abs(norm / mt.finish_gradients(plain, mesh) - 1) < 1e-6
        for one, other_ in zip(plain.parameters(), model.parameters()):
            assert difference(one.grad, other_.grad) < 1e-5
        late = DDP(hf_classes.model(layout))
        mt.apply_kernel("fused_moe", model=late.module, mesh=mesh)
        says(lambda: mt.finish_gradients(late), "DistributedDataParallel averages gradients of experts")
    print("done")
    """)


if __name__ == "__main__":
    unittest.main()
