"""Experts that ranks share: gradients, norms and steps are those of one process with all ranks' tokens."""

import unittest

import torch

import moeloom
import moeloom.torch as mt
from ranks import on_ranks, succeeds

BEGINNING = """
    import copy, itertools, torch, hf_classes, moeloom, moeloom.torch as mt
    from shared_steps import *
    size = moeloom.mesh().size
    meshes = [moeloom.mesh(ep=ep) for ep in (1, 2, 3, 4) if size % ep == 0]

    def check(layout, mesh, change=None, **more):
        whole, model = shared(layout, mesh, change=change)
        loss, wanted = of_one_process(whole, size, **more)
        mine, norm = of_this_rank(model, mesh, **more)
        worst, name = largest_difference(model, wanted)
        assert worst < 1e-5, f"{layout} at ep {mesh.ep}: {name} differs by {worst}"
        assert abs(norm / norm_of(wanted) - 1) < 1e-5, f"{layout} at ep {mesh.ep}: norm {norm}, {norm_of(wanted)}"
        bits = [p.grad.double().pow(2).sum().item().hex() for n, p in model.named_parameters()
                if p.grad is not None and n not in placed(model)]
        return mine.hex(), norm.hex(), bits
"""


def program(code):
    return BEGINNING + code


class Case(unittest.TestCase):
    def all_end(self, ranks, code, word):
        out = succeeds(ranks, code)
        self.assertEqual(out.count(word), ranks, out)


class Gradients(Case):
    def test_of_every_layout_and_mesh_with_the_same_bits_at_every_ep(self):
        code = program("""
    for layout in hf_classes.LAYOUTS:
        found = [check(layout, mesh) for mesh in meshes]
        if "stack" not in layout.split()[1:] or layout.startswith("5"):
            assert all(each == found[0] for each in found), f"{layout}: bits differ between ep: {found}"
    print(f"done {len(meshes)}")
    """)
        self.all_end(4, code, "done 3")

    def test_of_three_ranks_and_several_backwards(self):
        code = program("""
    for layout in ("4.x list", "5.x stack"):
        for mesh in meshes:
            check(layout, mesh, batches=2)
    print(f"done {len(meshes)}")
    """)
        self.all_end(3, code, "done 2")

    def test_of_what_is_trained_alone(self):
        code = program("""
    class LoRA(torch.nn.Module):  # as PEFT's
        def __init__(self, base):
            super().__init__()
            self.base = base
            self.a = torch.nn.Parameter(random(4, base.in_features, seed=1))
            self.b = torch.nn.Parameter(random(base.out_features, 4, seed=2))
        def forward(self, x):
            return self.base(x) + x @ self.a.T @ self.b.T
        @property
        def weight(self):
            return self.base.weight

    def on_attention(model):
        model.requires_grad_(False)
        model.attention.q_proj = LoRA(model.attention.q_proj)

    def experts_alone(model):
        model.requires_grad_(False)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("experts" in name)

    for layout, change in itertools.product(("4.x list", "5.x stack"), (on_attention, experts_alone)):
        found = [check(layout, mesh, change=change) for mesh in meshes]
        assert found[0] == found[1], found

    def of_biases(model):  # what no stack holds is called one by one
        for number, expert in enumerate(model.block.experts):
            expert.up_proj.bias = torch.nn.Parameter(random(hf_classes.WIDTH, seed=number))

    def adapters(model):
        on_attention(model)
        for expert in model.block.experts:
            expert.up_proj = LoRA(expert.up_proj)

    for layout in ("4.x list", "4.x list in a method"):
        check(layout, meshes[-1], change=of_biases)
    check("4.x list", meshes[-1], change=adapters)
    print("done")
    """)
        self.all_end(2, code, "done")

    def test_of_a_parameter_that_one_rank_did_not_use(self):
        code = program("""
    for mesh in meshes:
        model = torch.nn.ModuleList([torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)])
        with torch.no_grad():
            [p.fill_(0.5) for p in model.parameters()]
        (model[0] if mesh.rank else model[1])(torch.ones(2, 3)).sum().backward()
        norm = mt.finish_gradients(model, mesh)
        assert model[0].weight.grad.eq(1).all() and model[1].bias.grad.eq(1).all() and model[2].weight.grad is None
        assert abs(norm - (9 + 9 + 3) ** 0.5) < 1e-12, norm
    print("done")
    """)
        self.all_end(2, code, "done")


class Steps(Case):
    def test_are_those_of_one_process(self):
        code = program("""
    optimizers = {"AdamW": lambda p: mt.AdamW(p, lr=0.02), "SGD": lambda p: torch.optim.SGD(p, lr=0.002, momentum=0.9)}
    for (word, make), layout in itertools.product(optimizers.items(), ("4.x list", "5.x stack")):
        for mesh in meshes:
            whole, model = shared(layout, mesh)
            optimizers_ = make(whole.parameters()), make(model.parameters())
            for step in range(4):
                loss, _ = of_one_process(whole, size, step)
                norm = torch.nn.utils.clip_grad_norm_(whole.parameters(), 5.0).item()
                mine, got = of_this_rank(model, mesh, step, max_norm=5.0)
                both = torch.tensor([mine])
                mesh.world.sum([mt.functions.view(both)])
                assert abs(both.item() / loss - 1) < 2e-6 * 3 ** step, (word, layout, step, both.item(), loss)
                assert abs(got / norm - 1) < 1e-5 * 3 ** step, (word, layout, step, got, norm)
                [optimizer.step() for optimizer in optimizers_]
    print("done")
    """)
        self.all_end(2, code, "done")

    def test_mean_weighs_ranks_alike_with_and_without_ddp(self):
        code = program("""
    import os, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    mesh = meshes[0]
    dist.init_process_group("gloo", rank=mesh.rank, world_size=mesh.size)
    for layout in ("4.x list", "5.x stack"):
        whole, model = shared(layout, mesh)
        _, parallel = shared(layout, mesh, grads="autograd")
        parallel = DDP(parallel, find_unused_parameters=True)
        for each in (model, parallel):
            x = tokens_of(mesh.rank, size)
            each(x).backward()
        norm, of_ddp = (mt.finish_gradients(each, mesh, max_norm=0.1) for each in (model, parallel))
        assert abs(norm / of_ddp - 1) < 1e-6, (norm, of_ddp)
        for one, other in zip(model.parameters(), parallel.parameters()):
            assert difference(one.grad, other.grad) < 1e-5
        (sum(whole(tokens_of(rank, size)) for rank in range(size)) / size).backward()
        assert abs(norm / torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1).item() - 1) < 1e-5
        worst = largest_difference(model, {name: p.grad for name, p in whole.named_parameters()})
        assert worst[0] < 1e-5, worst
    print("done")
    """)
        if not torch.distributed.is_available():
            self.skipTest("this torch has no torch.distributed")
        self.all_end(2, code, "done")


class Batches(unittest.TestCase):
    def test_every_rank_has_its_own_and_all_hear_of_those_left_over(self):
        code = program("""
    mesh = meshes[0]
    mine = list(mt.shard_batches(iter("abcdef"), mesh))
    assert mine == list("abcdef")[mesh.rank::2], mine
    for batches in ("abc", "ab" if mesh.rank else "abcd"):
        came = []
        try:
            came.extend(mt.shard_batches(batches, mesh))
        except moeloom.ShapeError as error:
            print(f"said {error}")
    """)
        out = succeeds(2, code)
        self.assertEqual(out.count("said 3 batches do not divide among 2 ranks: 1 left over"), 2, out)
        self.assertEqual(out.count("batches: rank 0 has 4 or more, rank 1 has 2; every rank"), 2, out)


class Refusals(unittest.TestCase):
    def test_say_what_is_wrong(self):
        code = program("""
    mesh = meshes[-1]
    whole, model = shared("5.x stack", mesh)
    def says(call):
        try:
            call()
        except (moeloom.ConfigError, TypeError) as error:
            if mesh.rank == 0:
                print(f"said {error}")
    model(tokens_of(0, 2))
    if mesh.rank == 0:
        print(f"said {mt.reports(model)[0].reason}")
    says(lambda: mt.unapply(model))
    says(lambda: model.block.moe_experts(torch.zeros(1, 16).double(), None, None))
    says(lambda: mt.apply_kernel("fused_moe", model=model, mesh=meshes[0]))
    says(lambda: mt.finish_gradients(model, mesh, loss="average"))
    _, listed = shared("4.x list", mesh)
    says(lambda: listed.block.experts[4 if mesh.rank == 0 else 0](tokens_of(0, 2)))
    if mesh.rank:
        model.norm.weight.requires_grad_(False)
    says(lambda: mt.finish_gradients(model, mesh))
    dense = torch.nn.Linear(2, 2).to(torch.float64 if mesh.rank else torch.float32)
    says(lambda: mt.finish_gradients(dense, mesh))
    mesh = meshes[0]
    layer = mt.MoE(16, 8, 4, 2, mesh=mesh)
    for _ in range(1 + mesh.rank):
        layer(tokens_of(0, 2)).sum().backward()
    says(lambda: mt.finish_gradients(layer))
    with torch.no_grad():  # an evaluation
        for _ in range(mesh.rank):
            layer(tokens_of(0, 2))
    layer(tokens_of(0, 2)).sum().backward()
    mt.finish_gradients(layer)
    """)
        out = succeeds(2, code)
        for words in ("alltoall: ", "this rank has its share of the experts alone", "torch.float64",
                      "shared among the ranks of",
                      'unknown loss "average"', "is on another rank", "ranks train different parameters",
                      "rank 0: 1 forwards and 1 backwards, rank 1: 2 forwards and 2 backwards of experts"):
            self.assertIn(words, out)
        self.assertEqual(out.count("ranks train different parameters"), 2)

    def test_a_rank_that_was_refused_by_itself_may_call_again(self):
        code = program("""
    from moeloom.torch._dispatch import CombineFunction, DispatchFunction, Layer, through
    from moeloom.torch.buffer import Buffer

    def attempts(forward, x, idx, weights, met):
        kinds = [(x, idx.float(), weights), (x, idx, weights[:, 0]), (x, idx, weights.to(torch.complex64)),
                 (x[0], idx, weights), (x.to(torch.complex64), idx, weights)]
        sizes = [(x, idx, torch.ones(5, 2)), (x, idx, weights[1:]), (x, idx[1:], weights), (x[1:], idx, weights)]
        for each in kinds + sizes:
            is_met = mesh.ep > 1 and any(each is one for one in sizes[met:])  # of sizes all ranks hear in one call
            if mesh.rank or is_met:
                try:
                    forward(*each if mesh.rank else (x, idx, weights))
                except (moeloom.Error, TypeError):
                    print("refused")
        y = forward(x, idx, weights)
        y.sum().backward()
        assert y.detach().eq(x).all()

    for mesh in meshes:
        place, buffer = Layer(mesh, 4, mesh.next_layer()), Buffer(mesh)
        def by_functions(*given):
            rows, row_weights, _, trip = DispatchFunction.apply(*given, place)
            return CombineFunction.apply(rows, trip, row_weights)
        def by_buffer(*given):
            rows, _, _, _, handle = buffer.dispatch(*given, 4)
            return buffer.combine(rows, handle)
        x, idx, weights = random(5, 16).requires_grad_(), torch.arange(5).view(5, 1) % 4, torch.ones(5, 1)
        for scales in (False, True):
            mesh.ep_row.passes.taken()
            if mesh.ep == 1 and mesh.rank:  # without others in it products may fail too, or weights that are no floats
                for products, kind in ((lambda *_: 1 / 0, torch.float32), (lambda rows, _: rows, torch.int64)):
                    try:
                        through(products, x, idx, weights.to(kind), place, scales)
                    except (ZeroDivisionError, moeloom.Error, TypeError):
                        print("refused")
            attempts(lambda *given: through(lambda rows, counts: rows, *given, place, scales), x, idx, weights, 0)
            assert mesh.ep_row.passes.taken() == (1, 1), (mesh.ep, scales)
        attempts(by_functions, x, idx, weights, 0)
        attempts(by_buffer, x, idx, weights, 3)
    print("done")
    """)
        out = succeeds(2, code)
        self.assertEqual((out.count("refused"), out.count("done")), (2 * 4 * 9 + 4 + 3 * 4 + 1, 2), out)

    def test_a_model_of_one_process_needs_no_mesh(self):
        layer = torch.nn.Linear(2, 2)
        layer.empty = torch.nn.Parameter(torch.empty(0, 3))  # has no squares
        layer.empty.grad = torch.empty(0, 3)
        layer(torch.ones(1, 2)).sum().backward()
        self.assertAlmostEqual(mt.finish_gradients(layer, max_norm=1.0), 6 ** 0.5, places=6)
        self.assertAlmostEqual(mt.finish_gradients(layer), 1.0, places=5)
        self.assertEqual(list(mt.shard_batches([1, 2, 3], None)), [1, 2, 3])
        for wrong in (-1.0, "1.0", float("nan")):
            with self.assertRaisesRegex(moeloom.ConfigError, "max_norm = .*expected a number from 0 on, or None"):
                mt.finish_gradients(layer, max_norm=wrong)
        with moeloom.mesh() as mesh:
            self.assertAlmostEqual(mt.finish_gradients(layer, mesh), 1.0, places=5)


if __name__ == "__main__":
    unittest.main()
