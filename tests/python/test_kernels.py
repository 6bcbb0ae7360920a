"""The registry: what is asked for, what is left alone and why, and what the environment says."""

import os
import unittest
from unittest import mock

import torch

import hf_classes
import moeloom.torch as mt
from hf_classes import model
from moeloom.torch._flags import flags
from moeloom.torch._patch import patches
from patched import Case, step
from support import difference

IDS = ["fused_moe", "fused_rmsnorm", "fused_rope", "fused_swiglu"]


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

    def test_unknown_gradients(self):
        self.fails(['unknown grads "lost"; known: kept, autograd'], mt.apply_kernel, "fused_moe",
                   model=model("4.x list"), grads="lost")

    def test_kernels_from_outside(self):
        from moeloom.torch import _registry
        with mock.patch.dict(_registry._kernels), mock.patch.dict(_registry._aliases):
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

    def test_gmms_reason_is_reported_beside_unknown_modules(self):
        a_model = model("5.x stack", other=StrangeExperts())
        with mock.patch.dict(os.environ, MOELOOM_GMM_PATCH="0"):
            mt.apply_default_kernels(a_model)
        reasons = {r.module: r.reason for r in mt.reports(a_model) if r.kernel == "fused_moe" and not r.applied}
        self.assertIn("native loop", reasons["block.moe_experts"])
        self.assertIn("class StrangeExperts", reasons["other"])

    def test_what_stands_is_reported_when_switched_off(self):
        for name in ("MOELOOM_GMM_PATCH", "MOELOOM_PATCH"):
            a_model = mt.apply_default_kernels(model("4.x list"))
            with mock.patch.dict(os.environ, {name: "0"}):
                mt.apply_default_kernels(a_model)
            found, = [r for r in mt.reports(a_model) if r.kernel == "fused_moe"]
            self.assertEqual(found[:3], ("fused_moe", "block", True))
            self.assertIn("unapply", found.reason)
            mt.unapply(a_model)
            with mock.patch.dict(os.environ, {name: "0"}):
                mt.apply_default_kernels(a_model)
            self.assertFalse(any(r.applied for r in mt.reports(a_model) if r.kernel == "fused_moe"))

    def test_gmm_is_decided_by_sizes(self):
        from moeloom.torch import _kernels
        a_model = model("5.x stack", other=hf_classes.Qwen3MoeExperts(hf_classes.WIDTH + 4))
        with mock.patch.object(_kernels, "decide_gmm", side_effect=lambda request, experts, hidden, width, ep: (
                _kernels.Decision(width == hf_classes.WIDTH, f"width {width}"))):
            mt.apply_default_kernels(a_model)
        found = {r.module: (r.applied, r.reason) for r in mt.reports(a_model) if r.kernel == "fused_moe"}
        self.assertEqual(found["other"], (False, f"width {hf_classes.WIDTH + 4}"))
        self.assertTrue(found["block.moe_experts"][0])
        self.assertIn(f"width {hf_classes.WIDTH}", found["block.moe_experts"][1])

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
