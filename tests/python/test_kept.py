"""Gradients in memory that stays with the layer, and copies of layers."""

import copy
import io
import pickle
import unittest

import torch
import torch.nn.utils.parametrize
from layers import EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, backward, gradient_of, layer, layer_inputs, stacks
from support import difference, random, same

import moeloom.torch as mt


class KeptGradients(unittest.TestCase):
    def test_are_those_of_autograd(self):
        kept, ordinary = layer(), layer(grads="autograd")
        self.assertTrue(same(backward(kept), backward(ordinary)))
        self.assertTrue(same(kept.gate_up.grad, ordinary.gate_up.grad))
        self.assertTrue(same(kept.down.grad, ordinary.down.grad))

    def test_stay_in_one_memory(self):
        experts = layer()
        addresses = set()
        for _ in range(3):
            experts.gate_up.grad = experts.down.grad = None
            backward(experts)
            addresses.add((experts.gate_up.grad.data_ptr(), experts.down.grad.data_ptr()))
        self.assertEqual(len(addresses), 1)

    def test_are_added_where_there_are_some(self):
        experts = layer()
        backward(experts)
        once = experts.gate_up.grad.clone()
        backward(experts, scale=2.0)
        self.assertLess(difference(experts.gate_up.grad, 3 * once), 1e-6)
        experts.gate_up.grad = once.clone()  # somebody else's
        experts.down.grad = None
        backward(experts)
        self.assertLess(difference(experts.gate_up.grad, 2 * once), 1e-6)

    def test_are_added_to_a_gradient_that_lies_otherwise(self):
        experts = layer()
        backward(experts)
        once = experts.down.grad.clone()
        experts.down.grad = once.transpose(1, 2).contiguous().transpose(1, 2)
        backward(experts)
        self.assertLess(difference(experts.down.grad, 2 * once), 1e-6)

    def test_are_added_to_a_negated_view(self):
        experts = layer()
        backward(experts)
        once = experts.down.grad.clone()
        experts.down.grad = torch._neg_view(-once)
        backward(experts)
        self.assertLess(difference(experts.down.grad, 2 * once), 1e-6)

    def test_a_frozen_stack_has_none(self):
        experts = layer(frozen=["gate_up"])
        backward(experts)
        self.assertIsNone(experts.gate_up.grad)
        self.assertLess(difference(experts.down.grad, gradient_of("down")), 2e-6)
        frozen = layer(frozen=["gate_up", "down"])
        self.assertTrue(same(backward(frozen), backward(layer())))
        self.assertIsNone(frozen.down.grad)

    def test_weights_that_are_no_leaves_go_to_autograd(self):
        source = [t.requires_grad_() for t in stacks()]
        backward(mt.ExpertWeights(*(2 * t for t in source)))
        self.assertIsNotNone(source[0].grad)

    def test_an_optimizer_learns(self):
        torch.manual_seed(0)
        moe = mt.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K)
        x, target = random(64, HIDDEN), random(64, HIDDEN, seed=7)
        optimizer = mt.AdamW(moe.parameters(), lr=1e-2)
        losses = []
        for _ in range(60):
            loss = (moe(x) - target).pow(2).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.8 * losses[0])

    def test_autograd_grad_leaves_them_alone(self):
        x, idx, weights = layer_inputs()
        experts = layer()
        x = x.requires_grad_()
        dx, = torch.autograd.grad(mt.ExpertsFunction.apply(x, idx, weights, experts).sum(), [x])
        self.assertIsNone(experts.gate_up.grad)
        self.assertTrue(same(dx, backward(layer())))
        y = mt.ExpertsFunction.apply(x, idx, weights, experts).sum()
        d_gate_up, = torch.autograd.grad(y, [experts.gate_up])
        self.assertTrue(same(d_gate_up, gradient_of("gate_up")))
        self.assertIsNone(experts.gate_up.grad)


class Copies(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)
        self.moe = mt.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K)
        self.x = random(5, HIDDEN)
        self.y = self.moe(self.x)
        self.y.sum().backward()

    def check(self, twin):
        self.assertTrue(same(twin(self.x), self.y))
        before = self.moe.experts.gate_up_proj.grad.clone()
        twin.zero_grad(set_to_none=True)
        (5 * twin(self.x)).sum().backward()
        self.assertTrue(same(self.moe.experts.gate_up_proj.grad, before), "the twin wrote the original's gradient")
        self.assertLess(difference(twin.experts.gate_up_proj.grad, 5 * before), 1e-6)

    def test_deepcopy(self):
        self.check(copy.deepcopy(self.moe))

    def test_pickle(self):
        self.check(pickle.loads(pickle.dumps(self.moe)))

    def test_save_and_load(self):
        file = io.BytesIO()
        torch.save(self.moe.state_dict(), file)
        file.seek(0)
        twin = mt.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K)
        twin.load_state_dict(torch.load(file))
        self.check(twin)

    def test_another_dtype(self):
        twin = copy.deepcopy(self.moe).bfloat16()
        y = twin(self.x.bfloat16())
        y.sum().backward()
        self.assertEqual(twin.experts.down_proj.grad.dtype, torch.bfloat16)
        self.assertLess(difference(y, self.y), 5e-2)

    def test_a_parametrised_layer(self):
        class Twice(torch.nn.Module):
            def forward(self, weight):
                return 2 * weight

            def right_inverse(self, weight):
                return weight / 2
        torch.nn.utils.parametrize.register_parametrization(self.moe.experts, "down_proj", Twice())
        self.moe(self.x).sum().backward()
        twin = copy.deepcopy(self.moe)
        self.assertLess(difference(twin(self.x), self.y), 1e-6)

    def test_nothing_computed_is_held_between_calls(self):
        self.assertEqual(self.moe.experts._weights.tensors, (None,) * 4)

    def test_a_replaced_parameter_is_the_one_that_counts(self):
        self.moe.experts.down_proj = torch.nn.Parameter(torch.zeros_like(self.moe.experts.down_proj))
        self.assertEqual(float(self.moe(self.x).detach().abs().max()), 0.0)
