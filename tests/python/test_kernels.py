"""The registry, and kernels on small modules with Hugging Face's class names."""

import copy
import os
import pickle
import unittest
import weakref
from types import SimpleNamespace
from unittest import mock

import torch

import hf_classes
import moeloom
import moeloom.torch as mt
from hf_classes import LAYOUTS, model
from moeloom.torch._flags import flags
from moeloom.torch._patch import patches
from support import difference, random

X = random(2, 7, hf_classes.HIDDEN, seed=4)
IDS = ["fused_moe", "fused_rmsnorm", "fused_rope", "fused_swiglu"]


def step(a_model, x=X):
    a_model.zero_grad(set_to_none=True)
    loss = a_model(x)
    loss.backward()
    return loss.item(), {name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                         for name, p in a_model.named_parameters()}


class Case(unittest.TestCase):
    def setUp(self):
        kept = {name: text for name, text in os.environ.items() if "PATCH" not in name and "FUSED_OPS" not in name}
        patcher = mock.patch.dict(os.environ, kept, clear=True)
        patcher.start()
        self.addCleanup(patcher.stop)

    def agrees(self, patched, wanted, tolerance=5e-6):
        for _ in range(2):
            loss, grads = step(patched)
            self.assertAlmostEqual(loss, wanted[0], delta=1e-6 * max(1.0, abs(wanted[0])))
            for name, grad in wanted[1].items():
                self.assertLess(difference(grads[name], grad), tolerance, name)

    def fails(self, words, call, *arguments, **named):
        with self.assertRaises(moeloom.ConfigError) as caught:
            call(*arguments, **named)
        for word in words:
            self.assertIn(word, str(caught.exception))


class Layouts(Case):
    def test_a_patched_model_computes_what_it_did(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = model(layout)
                wanted, names = step(a_model), list(a_model.state_dict())
                parameters = list(a_model.parameters())
                self.assertIs(mt.apply_default_kernels(a_model), a_model)
                self.agrees(a_model, wanted)
                self.assertEqual(list(a_model.state_dict()), names)
                self.assertTrue(all(a is b for a, b in zip(a_model.parameters(), parameters)))

    def test_gradients_of_autograd_pass_hooks(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = model(layout)
                wanted = step(a_model)
                mt.apply_kernel("fused_moe", model=a_model, grads="autograd")
                seen = []
                parameter = [p for n, p in a_model.named_parameters() if "experts" in n][0]
                parameter.register_hook(seen.append)
                self.agrees(a_model, wanted)
                self.assertEqual(len(seen), 2)

    def test_gradients_add_up(self):
        for layout in LAYOUTS:
            for some in (False, True):
                with self.subTest(layout, some=some):
                    a_model = model(layout)
                    _, once = step(a_model)
                    mt.apply_default_kernels(a_model)
                    step(a_model)
                    if some:  # of some parameters only the second half is wanted
                        for parameter in list(a_model.parameters())[::2]:
                            parameter.grad = None
                    a_model(X).backward()
                    for number, (name, parameter) in enumerate(a_model.named_parameters()):
                        times = 1 if some and number % 2 == 0 else 2
                        self.assertLess(difference(parameter.grad, times * once[name]), 5e-6, name)

    def test_frozen_experts_have_no_gradient(self):
        a_model = model("4.x list")
        frozen = list(a_model.block.experts[1].parameters()) + [a_model.block.experts[2].up_proj.weight]
        for parameter in frozen:
            parameter.requires_grad_(False)
        wanted = step(a_model)
        mt.apply_default_kernels(a_model)
        self.agrees(a_model, wanted)
        self.assertTrue(all(parameter.grad is None for parameter in frozen))

    def test_copies_and_pickles_are_patched_and_apart(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = mt.apply_default_kernels(model(layout))
                wanted = step(a_model)
                for twin in (copy.deepcopy(a_model), pickle.loads(pickle.dumps(a_model))):
                    self.assertEqual([n for n, _ in patches(twin)], [n for n, _ in patches(a_model)])
                    self.assertTrue(all(patch.module is dict(twin.named_modules())[n] for n, patch in patches(twin)))
                    self.agrees(twin, wanted)
                    with torch.no_grad():
                        for parameter in twin.parameters():
                            parameter.zero_()
                    self.assertNotEqual(step(twin)[0], wanted[0])
                    self.agrees(a_model, wanted)

    def test_weights_that_move_are_followed(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model, plain = model(layout, seed=1), model(layout, seed=2)
                mt.apply_default_kernels(a_model)
                step(a_model)
                a_model.load_state_dict(plain.state_dict())
                self.agrees(a_model, step(plain))
                a_model.double().float()
                self.agrees(a_model, step(plain))

    def test_a_first_forward_in_inference_mode(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = model(layout)
                wanted = step(a_model)
                twin = copy.deepcopy(mt.apply_default_kernels(a_model))
                with torch.inference_mode():
                    self.assertLess(abs(float(twin(X)) - wanted[0]), 1e-6)
                self.agrees(twin, wanted)

    def test_an_optimizer_from_before_moves_the_weights(self):
        a_model, plain = model("4.x list"), model("4.x list")
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (a_model, plain)]
        mt.apply_default_kernels(a_model)
        for _ in range(3):
            for m, optimizer in zip((a_model, plain), optimizers):
                step(m)
                optimizer.step()
        self.agrees(a_model, step(plain))

    def test_evaluation_and_no_tokens(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model = model(layout)
                with torch.no_grad():
                    wanted = a_model(X)
                    mt.apply_default_kernels(a_model)
                    self.assertLess(difference(a_model(X), wanted), 2e-6)
                if "5.x" in layout:
                    y, _ = a_model.block(torch.zeros(1, 0, hf_classes.HIDDEN))
                    self.assertEqual(y.shape, (1, 0, hf_classes.HIDDEN))


class Undone(Case):
    def test_unapply_gives_back_the_very_functions(self):
        for layout in LAYOUTS:
            with self.subTest(layout):
                a_model, rope = model(layout), hf_classes.apply_rotary_pos_emb
                before = {name: dict(m.__dict__) for name, m in a_model.named_modules()}
                mt.apply_default_kernels(a_model)
                mt.apply_default_kernels(a_model)
                self.assertEqual(hf_classes.apply_rotary_pos_emb is rope, a_model.config.model_type != "qwen3_moe")
                self.assertIs(mt.unapply(a_model), a_model)
                self.assertIs(hf_classes.apply_rotary_pos_emb, rope)
                for name, module in a_model.named_modules():
                    self.assertEqual(sorted(module.__dict__), sorted(before[name]), name)
                self.assertEqual(mt.reports(a_model), [])

    def test_somebody_elses_forward_comes_back(self):
        a_model = model("5.x stack")
        a_model.norm.forward = theirs = lambda x: x
        mt.apply_kernel("fused_rmsnorm", model=a_model)
        mt.unapply(a_model)
        self.assertIs(a_model.norm.forward, theirs)

    def test_twice_is_once_and_other_settings_replace(self):
        a_model = mt.apply_default_kernels(model("4.x list"))
        first, found = dict(patches(a_model)), mt.reports(a_model)
        mt.apply_default_kernels(a_model)
        self.assertEqual({n: id(p) for n, p in patches(a_model)}, {n: id(p) for n, p in first.items()})
        self.assertEqual(mt.reports(a_model), found)
        mt.apply_kernel("fused_moe", model=a_model, grads="autograd")
        self.assertEqual(dict(patches(a_model))["block"].grads, "autograd")
        mt.unapply(a_model)
        self.assertEqual(list(patches(a_model)), [])

    def test_a_model_that_nobody_holds_is_gone_at_once(self):
        for layout in LAYOUTS:
            rope = hf_classes.apply_rotary_pos_emb
            gone = weakref.ref(mt.apply_default_kernels(model(layout)))
            self.assertIsNone(gone(), layout)
            self.assertIs(hf_classes.apply_rotary_pos_emb, rope)

    def test_another_model_of_the_class_stays_as_it_is(self):
        patched, plain = model("5.x stack"), model("5.x stack")
        mt.apply_default_kernels(patched)
        with mock.patch("moeloom.torch._rope.RopeFunction.apply", side_effect=AssertionError):
            step(plain)
            self.assertRaises(AssertionError, step, patched)
        self.assertEqual(list(patches(plain)), [])
        mt.unapply(patched)


class Strange(hf_classes.Qwen3MoeExperts):
    pass


class StrangeExperts(hf_classes.Qwen3MoeExperts):
    pass


class Left(Case):
    """What is unknown is left alone, and why is reported."""

    def left(self, a_model, *words, kernel="fused_moe", module="block.moe_experts"):
        wanted = step(a_model)
        mt.apply_default_kernels(a_model)
        found = [r for r in mt.reports(a_model) if r.kernel == kernel and not r.applied and r.module == module]
        self.assertEqual(len(found), 1, mt.reports(a_model))
        for word in words:
            self.assertIn(word, found[0].reason)
        self.agrees(a_model, wanted)
        mt.unapply(a_model)
        self.fails(["asked for by name and cannot run here", *words], mt.apply_kernel, kernel, model=a_model)

    def test_a_model_type(self):
        a_model = model("5.x stack")
        a_model.config.model_type = "qwen9_moe"
        self.left(a_model, 'model type "qwen9_moe" is not one this kernel knows', module="")
        del a_model.config
        self.left(a_model, "no config", module="")

    def test_a_class(self):
        self.left(hf_classes.Model("qwen3_moe", hf_classes.StackedBlock(StrangeExperts())), "class StrangeExperts")
        self.left(hf_classes.Model("qwen3_moe", hf_classes.StackedBlock(Strange())), "no experts", module="")

    def test_a_class_of_another_model_type(self):
        self.left(hf_classes.Model("mixtral", hf_classes.StackedBlock(hf_classes.Qwen3MoeExperts())),
                  "class Qwen3MoeExperts")

    def test_an_activation(self):
        a_model = model("5.x stack")
        a_model.block.moe_experts.act_fn = torch.nn.ReLU()
        self.left(a_model, "activation is ReLU")
        a_model = model("4.x list", mlp=hf_classes.Qwen3MoeMLP(torch.tanh))
        a_model.block.experts = torch.nn.ModuleList()
        mt.apply_default_kernels(a_model)
        self.assertIn(("mlp", False), [(r.module, r.applied) for r in mt.reports(a_model)])

    def test_gelu_stays_gelu(self):
        for act in (torch.nn.GELU(), torch.nn.GELU(approximate="tanh"), torch.nn.functional.silu):
            a_model = model("5.x stack")
            del a_model.block.moe_experts.act_fn
            a_model.block.moe_experts.act_fn = act
            wanted = step(a_model)
            mt.apply_kernel("fused_moe", model=a_model)
            self.agrees(a_model, wanted)

    def test_a_layout_that_the_class_itself_denies(self):
        a_model = model("5.x stack, 2F = D")
        a_model.block.moe_experts.is_transposed = True
        self.left(a_model, "is_transposed = True")
        a_model = model("5.x stack")
        a_model.block.moe_experts.down_proj = torch.nn.Parameter(torch.zeros(5, 12, 16))
        mt.apply_default_kernels(a_model)
        self.assertFalse([r for r in mt.reports(a_model) if r.kernel == "fused_moe" and r.applied])

    def test_a_list_that_is_no_list_of_plain_linears(self):
        a_model = model("4.x list")
        a_model.block.experts[3].up_proj = torch.nn.Sequential(a_model.block.experts[3].up_proj)
        self.left(a_model, "experts.3.up_proj", "Sequential", module="block")
        a_model = model("4.x list")
        a_model.block.experts[0].down_proj = torch.nn.Linear(12, 16)
        self.left(a_model, "experts.0.down_proj has a bias", module="block")

    def test_a_linear_that_is_wrapped_later(self):
        a_model = mt.apply_default_kernels(model("4.x list"))
        wanted = step(a_model)
        inner = a_model.block.experts[3].up_proj
        a_model.block.experts[3].up_proj = torch.nn.Sequential(inner)
        loss, grads = step(a_model)
        self.assertAlmostEqual(loss, wanted[0], places=6)
        self.assertLess(difference(inner.weight.grad, wanted[1]["block.experts.3.up_proj.weight"]), 5e-6)
        self.assertEqual(len(grads), len(wanted[1]))


class Requests(Case):
    def test_ids(self):
        self.assertEqual(list(mt.scan_all_kernels()), IDS)
        self.assertEqual(mt.get_default_kernels(), IDS)
        for word in IDS:
            a_model = mt.apply_kernel("npu_" + word, model=model("4.x list"))
            self.assertEqual({r.kernel for r in mt.reports(a_model)}, {word})

    def test_what_is_asked_for(self):
        cases = [(None, []), (False, []), ("", []), ("none", []), ("auto", IDS), (True, IDS), (" AUTO ", IDS),
                 ("fused_moe", ["fused_moe"]), (" fused_rope , npu_fused_moe", ["fused_moe", "fused_rope"])]
        for request, wanted in cases:
            a_model = mt.apply_default_kernels(model("4.x list"), include_kernels=request)
            self.assertEqual(sorted({r.kernel for r in mt.reports(a_model)}), wanted, request)
        a_model = mt.apply_kernels(model("4.x list"), {"name": "auto, fused_moe"})
        self.assertEqual(sorted({r.kernel for r in mt.reports(a_model)}), IDS)

    def test_an_unknown_id_is_refused_before_anything_is_applied(self):
        a_model = model("4.x list")
        for call in (lambda: mt.apply_kernels(a_model, "fused_rope,fused_mlp"),
                     lambda: mt.apply_kernel("fused_mlp", model=a_model),
                     lambda: mt.apply_default_kernels(a_model, "fused_moe, fused_mlp")):
            self.fails(['unknown kernel "fused_mlp"; known: fused_moe, fused_rmsnorm, fused_rope, fused_swiglu'], call)
            self.assertEqual(list(patches(a_model)), [])

    def test_one_that_cannot_run_stops_all_that_were_named(self):
        a_model = model("4.x list")
        a_model.block.gate, a_model.block.experts = None, None
        self.fails(["fused_moe", "no experts"], mt.apply_kernels, a_model, "fused_rmsnorm,fused_moe")
        self.assertEqual(list(patches(a_model)), [])
        mt.apply_kernels(a_model, "auto")
        self.assertTrue(list(patches(a_model)))

    def test_ranks_that_share_experts_are_not_of_this_kernel(self):
        mesh = SimpleNamespace(ep=2)
        self.fails(["fused_moe", "ep = 2"], mt.apply_kernels, model("4.x list"), "fused_rope,fused_moe", mesh=mesh)
        found = mt.reports(mt.apply_kernels(model("4.x list"), "auto", mesh=mesh))
        self.assertEqual({r.kernel for r in found if not r.applied}, {"fused_moe"})

    def test_unknown_gradients(self):
        self.fails(['unknown grads "lost"; known: kept, autograd'], mt.apply_kernel, "fused_moe",
                   model=model("4.x list"), grads="lost")

    def test_kernels_from_outside(self):
        from moeloom.torch import kernels
        with mock.patch.dict(kernels._kernels), mock.patch.dict(kernels._aliases):
            @mt.register_kernel("marks")
            class Marks(mt.BaseKernel):
                def check(self, a_model):
                    return "it is marked" if hasattr(a_model, "mark") else None

                def apply(self, a_model, mesh=None):
                    a_model.mark = mesh
                    return a_model

            self.assertIs(mt.scan_all_kernels()["marks"], Marks)
            a_model = mt.apply_kernel("marks", model=model("4.x list"), mesh=None)
            self.assertEqual([r[:3] for r in mt.reports(a_model)], [("marks", "", True)])
            self.fails(["it is marked"], mt.apply_kernel, "marks", model=a_model)
            self.fails(["is taken by fused_moe"], mt.register_kernel("npu_fused_moe"), type("Other", (), {}))


class Environment(Case):
    def reports_of(self, **variables):
        with mock.patch.dict(os.environ, variables):
            return {r.kernel: r for r in mt.reports(mt.apply_default_kernels(model("5.x stack")))}

    def test_gmm_as_the_program_reads_it(self):
        for words, applied, reason in [({}, True, "contiguous"), ({"MOELOOM_GMM_PATCH": "0"}, False, "native loop"),
                                       ({"MOELOOM_GMM_PATCH": " OFF "}, False, "native loop"),
                                       ({"MOELOOM_GMM_PATCH": "1"}, False, "no mesh is known"),
                                       ({"TWINKLE_NPU_GMM_PATCH": "yes"}, False, "no mesh is known"),
                                       ({"MOELOOM_GMM_PATCH": "force"}, True, "force"),
                                       ({"MOELOOM_GMM_PATCH": "auto"}, True, "contiguous")]:
            with self.subTest(words):
                found = self.reports_of(**words)
                self.assertEqual(found["fused_moe"].applied, applied)
                self.assertIn(reason, found["fused_moe"].reason)
                self.assertTrue(found["fused_rmsnorm"].applied)

    def test_switches(self):
        self.assertFalse(any(r.applied for r in self.reports_of(TWINKLE_NPU_PATCH="0").values()))
        found = self.reports_of(MOELOOM_FUSED_OPS="no")
        self.assertEqual({k for k, r in found.items() if r.applied}, {"fused_moe"})
        self.assertIn("MOELOOM_FUSED_OPS=no", found["fused_rope"].reason)

    def test_words_that_are_none(self):
        self.fails(['MOELOOM_GMM_PATCH = "measure" is not valid; valid: 0, 1, auto, force'], flags,
                   {"MOELOOM_GMM_PATCH": "measure"})
        self.fails(["TWINKLE_NPU_GMM_PATCH", "valid: 1, true"], flags, {"TWINKLE_NPU_GMM_PATCH": "auto"})
        self.fails(["disagree (MOELOOM_PATCH=0, TWINKLE_NPU_PATCH=on)"], flags,
                   {"MOELOOM_PATCH": "0", "TWINKLE_NPU_PATCH": "on"})

    def test_asked_for_by_name(self):
        with mock.patch.dict(os.environ, MOELOOM_GMM_PATCH="0"):
            self.fails(["fused_moe", "native loop"], mt.apply_kernel, "fused_moe", model=model("5.x stack"))


if __name__ == "__main__":
    unittest.main()
