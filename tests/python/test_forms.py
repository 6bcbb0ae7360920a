"""Parts whose formula or call differs from most models': patched by a row of their own, or left alone."""

import copy
import unittest
from unittest import mock

import torch
from torch import nn

import hf_classes
import hf_cohere2_moe
import hf_gemma4
import moeloom.torch as mt
from moeloom.torch import _rope
from patched import Case, step


def applied(a_model):
    return {(report.kernel, report.module) for report in mt.reports(a_model) if report.applied}


class GraniteMoeSWAMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_linear = nn.Linear(hf_classes.HIDDEN, 2 * hf_classes.WIDTH, bias=False)
        self.output_linear = nn.Linear(hf_classes.WIDTH, hf_classes.HIDDEN, bias=False)
        self.activation = nn.SiLU()

    def forward(self, x):
        gate, up = self.input_linear(x).chunk(2, -1)
        return self.output_linear(self.activation(gate) * up), None


class Forms(Case):
    def turns(self, a_model, times):
        """Rope is ours, and the patched model computes what it did."""
        wanted = step(a_model)
        mt.apply_default_kernels(a_model)
        turned = mock.Mock(wraps=_rope.RopeFunction)
        with mock.patch.object(_rope, "RopeFunction", turned):
            self.agrees(a_model, wanted)
        self.assertEqual(turned.apply.call_count, 2 * times)
        self.agrees(copy.deepcopy(a_model), wanted)

    def test_norms_without_weight_and_a_rope_of_one_tensor(self):
        a_model = hf_gemma4.model()
        self.turns(a_model, times=2)
        norms = {("fused_rmsnorm", name) for name in ("norm", "attention.q_norm", "attention.v_norm")}
        self.assertEqual(applied(a_model), norms | {("fused_rope", "attention"), ("fused_moe", "block.moe_experts")})

    def test_a_norm_that_has_lost_its_weight_is_left_alone(self):
        a_model = hf_gemma4.model()
        del a_model.norm.weight
        mt.apply_kernel("fused_rmsnorm", model=a_model)
        self.assertIn(("norm", False, "it has no weight"), [each[1:] for each in mt.reports(a_model)])

    def test_a_rope_that_is_called_otherwise_is_the_files(self):
        a_model = hf_gemma4.model()
        x, cos, sin = torch.randn(2, 2, 7, 8), *torch.randn(2, 1, 7, 8)
        wanted = hf_gemma4.apply_rotary_pos_emb(x, cos, sin)
        a_model.attention.forward = lambda given: hf_gemma4.apply_rotary_pos_emb(x, cos, sin)
        mt.apply_kernel("fused_rope", model=a_model)
        self.assertTrue(torch.equal(a_model.attention(x), wanted))

    def test_pairs_side_by_side_and_norms_of_another_formula(self):
        a_model = hf_cohere2_moe.model()
        self.turns(a_model, times=1)
        self.assertEqual(applied(a_model), {("fused_rope", "attention"), ("fused_moe", "block.moe_experts")})
        self.fails(["fused_rmsnorm", "none of the modules"], mt.apply_kernel, "fused_rmsnorm", model=a_model)

    def test_an_mlp_of_one_product_for_gate_and_up(self):
        torch.manual_seed(1)
        a_model = hf_classes.Model("granitemoe_swa", GraniteMoeSWAMLP())
        wanted = step(a_model)
        self.fails(["no experts"], mt.apply_kernel, "fused_moe", model=a_model)
        mt.apply_default_kernels(a_model)
        self.assertIn(("fused_swiglu", "block"), applied(a_model))


if __name__ == "__main__":
    unittest.main()
