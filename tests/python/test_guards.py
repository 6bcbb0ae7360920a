"""What a model may not do any more once ranks share its experts, and what it goes on to do."""

import tempfile
import unittest

from ranks import succeeds

PROGRAM = """
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

    def a_shared_model_has_one_mesh():
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
                says(call, "shared among the ranks of", "of 2, dp 0 of 1", "ep 0 of 1", "expected the same mesh")
            place = place.with_name(f"of {mesh.rank}")
            for call in (lambda: mt.save_pretrained(model, place), lambda: mt.load_checkpoint(model, optimizer, place),
                         lambda: mt.save_checkpoint(model, optimizer, place)):
                says(call, "ranks name different folders: rank 0 /", "of 0, rank 1 /", "every rank names the same")
            place = place.with_name("at")
        for kind in (KeyError, moeloom.IoError, NotImplementedError):
            says(lambda: together(mesh, lambda: fails(kind)), "this rank" if mesh.rank else "rank 1", kinds=kind)

    def adapters_of_experts():
        # on a stack: before and after it is shared
        whole = hf_classes.model("5.x stack")
        held = whole.block.moe_experts
        whole.block.moe_experts = LoRA(held)
        says(lambda: mt.apply_kernel("fused_moe", model=whole, mesh=mesh), "on a stack of experts", "merge_and")
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

    def ranks_begin_with_the_same_values():
        def differs(name, mesh):
            _, model = shared("4.x list", mesh)
            model.attention.requires_grad_(False)
            for each, parameter in model.named_parameters():
                if each == name and mesh.rank == 1:
                    with torch.no_grad():
                        parameter.view(-1)[-1] += 1
            return model
        for name, on in (("norm.weight", mesh), ("attention.q_proj.weight", mesh),
                         ("block.experts.4.up_proj.weight", other)):  # which every rank has at ep 1
            says(lambda: mt.finish_gradients(differs(name, on)), f"{name} has other values on rank 1 than on rank 0 ",
                 "manual_seed", "load_checkpoint")
        model = differs("", mesh)
        assert mt.finish_gradients(model) == 0
        if mesh.rank:
            model.norm.weight.data.zero_()
        mt.finish_gradients(model)  # looks once

    def what_a_whole_optimizer_and_uneven_experts_need():
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

    def beside_ddp():
        if not torch.distributed.is_available():
            return
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

    for each in (a_shared_model_has_one_mesh, adapters_of_experts, ranks_begin_with_the_same_values,
                 what_a_whole_optimizer_and_uneven_experts_need, beside_ddp):
        each()
        print(f"{each.__name__} done")
"""


class Guards(unittest.TestCase):
    def test_on_two_ranks(self):
        """One job for all: a start takes longer than what it does."""
        with tempfile.TemporaryDirectory() as folder:
            out = succeeds(2, PROGRAM, folder)
        self.assertEqual(out.count("done"), 2 * 5, out)


if __name__ == "__main__":
    unittest.main()
