"""What autograd does with a layer: backward twice, derivatives of derivatives, checkpoints, hooks, compile."""

import unittest
import warnings
from unittest import mock

import hf_classes
import torch
from layers import EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, backward, gradient_of, layer, layer_inputs
from patched import X, step
from support import difference, python, random, same
from torch.utils.checkpoint import checkpoint

import moeloom
import moeloom.torch as mt


class Autograd(unittest.TestCase):
    def forward(self):
        x, idx, weights = layer_inputs()
        return mt.ExpertsFunction.apply(x.requires_grad_(), idx, weights, layer())

    def test_a_second_backward_is_spent(self):
        for retain in (True, False):
            y = self.forward()
            y.backward(torch.ones_like(y), retain_graph=retain)
            with self.assertRaises(moeloom.SpentError) as caught:
                y.backward(torch.ones_like(y))
            self.assertIn("again", str(caught.exception))

    def test_indices_may_be_a_list(self):
        x, idx, weights = layer_inputs()
        experts, wanted = layer(), layer()
        dx = backward(wanted)
        y = mt.ExpertsFunction.apply(x.requires_grad_(), idx.tolist(), weights, experts)
        y.sum().backward()
        self.assertTrue(same(x.grad, dx))
        self.assertTrue(same(experts.down.grad, wanted.down.grad))

    def test_a_second_derivative_is_refused(self):
        x, counts = random(3, 8).requires_grad_(), torch.tensor([3])
        y = mt.gmm(x, random(1, 8, 4).requires_grad_(), counts).pow(2).sum()
        dx, = torch.autograd.grad(y, [x], create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "once_differentiable"):
            dx.sum().backward()

    @unittest.skipUnless(hasattr(torch, "func"), "torch 1.13 has no vmap")
    def test_vmap_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "setup_context|vmap"):
            torch.func.vmap(mt.SwigluFunction.apply)(random(2, 3, 8))

    def test_without_gradients_nothing_waits_for_a_backward(self):
        from moeloom._group import Experts
        x, idx, weights = layer_inputs()
        results = []
        with mock.patch.object(Experts, "forward", autospec=True, side_effect=Experts.forward) as forward:
            with torch.no_grad():
                results.append(mt.ExpertsFunction.apply(x, idx, weights, layer()))
            results.append(mt.ExpertsFunction.apply(x, idx, weights, layer(frozen=["gate_up", "down"])))
            results.append(mt.ExpertsFunction.apply(x, idx, weights, layer()))
        self.assertEqual([call.args[-1] for call in forward.call_args_list], [False, False, True])
        self.assertEqual([y.requires_grad for y in results], [False, False, True])
        self.assertTrue(all(same(y.detach(), results[0]) for y in results))

    def test_forwards_may_go_back_in_any_order(self):
        first, second = layer(), layer()
        x, idx, weights = layer_inputs()
        one = mt.ExpertsFunction.apply(x, idx, weights, first)
        other = mt.ExpertsFunction.apply(2 * x, idx, weights, second)
        one.sum().backward()
        other.sum().backward()
        self.assertLess(difference(first.gate_up.grad, gradient_of("gate_up")), 2e-6)

    def test_checkpointing_changes_no_bits(self):
        wanted = layer()
        dx = backward(wanted)
        for reentrant in (True, False):
            experts = layer()
            got = backward(experts, run=lambda f, x: checkpoint(f, x, use_reentrant=reentrant))
            self.assertTrue(same(got, dx))
            self.assertTrue(same(experts.gate_up.grad, wanted.gate_up.grad))
            self.assertTrue(same(experts.down.grad, wanted.down.grad))

    def test_checkpointing_keeps_no_trip(self):
        from moeloom.torch._experts_function import _tickets
        x, idx, weights = layer_inputs()
        experts = layer()
        before = len(_tickets._tickets)
        y = checkpoint(lambda x: mt.ExpertsFunction.apply(x, idx, weights, experts), x.requires_grad_(),
                       use_reentrant=False)
        self.assertEqual(len(_tickets._tickets), before)
        y.sum().backward()
        del y
        self.assertEqual(len(_tickets._tickets), before)

    def test_what_hooks_moved_is_computed_again(self):
        experts, wanted = layer(), layer()
        dx = backward(wanted)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            self.assertTrue(same(backward(experts), dx))
        self.assertTrue(same(experts.down.grad, wanted.down.grad))

    def test_changed_weights_are_noticed(self):
        x, idx, weights = layer_inputs()
        experts = layer()
        y = mt.ExpertsFunction.apply(x.requires_grad_(), idx, weights, experts)
        with torch.no_grad():
            experts.gate_up.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "inplace"):
            y.sum().backward()


class Fork(unittest.TestCase):
    def test_a_child_hears_that_it_was_forked_and_waits_for_nobody(self):
        """As a DataLoader's worker, forked while another thread of its parent is inside the library."""
        said = python("""
import os, signal
from layers import layer, layer_inputs
import moeloom
import moeloom.torch as mt
from moeloom._group import alone
x, idx, weights = layer_inputs()
mt.ExpertsFunction.apply(x, idx, weights, layer())
with alone().lock:
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            mt.ExpertsFunction.apply(x, idx, weights, layer())
        except moeloom.Error as error:
            os._exit(0 if "was forked from" in str(error) else 1)
        os._exit(1)
print(os.waitpid(child, 0)[1])
""")
        self.assertEqual(said, "0")


@unittest.skipUnless(hasattr(torch, "compile"), "torch 1.13 has no compile")
class Compile(unittest.TestCase):
    def test_breaks_its_graph_here_and_goes_on(self):
        torch.manual_seed(2)
        moe = mt.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K)
        x = random(5, HIDDEN)
        wanted = moe(x)
        got = torch.compile(lambda x: moe(2 * x / 2) + 1, backend="eager")(x)
        self.assertLess(difference(got, wanted + 1), 1e-6)
        got.sum().backward()
        self.assertGreater(float(moe.experts.down_proj.grad.abs().max()), 0)

    def test_patched_models_compute_what_they_did(self):
        for layout in hf_classes.LAYOUTS:
            with self.subTest(layout):
                torch._dynamo.reset()
                a_model = hf_classes.model(layout)
                wanted = step(a_model)
                mt.apply_default_kernels(a_model)
                compiled = torch.compile(a_model, backend="eager")
                for _ in range(2):
                    a_model.zero_grad(set_to_none=True)
                    loss = compiled(X)
                    loss.backward()
                    self.assertAlmostEqual(loss.item(), wanted[0], places=5)
                    for name, parameter in a_model.named_parameters():
                        self.assertLess(difference(parameter.grad, wanted[1][name]), 5e-6, name)

    def test_it_does_not_look_into_the_library(self):
        torch._dynamo.reset()
        experts, (x, idx, weights) = layer(), layer_inputs()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.compile(lambda x: mt.ExpertsFunction.apply(x, idx, weights, experts) + 1, backend="eager")(x)
        self.assertEqual([str(one.message) for one in caught if "moeloom" in str(one.message)], [])

    def test_a_function_breaks_the_graph_once(self):
        weight, counts = random(2, 8, 3), torch.tensor([2, 2])
        for function in (lambda x: mt.SwigluFunction.apply(2 * x) + 1, lambda x: mt.gmm(2 * x, weight, counts) + 1,
                         lambda x: mt.RMSNormFunction.apply(2 * x, torch.ones(8), 1e-6) + 1):
            torch._dynamo.reset()
            x = random(4, 8).requires_grad_()
            self.assertTrue(same(torch.compile(function, backend="eager")(x).detach(), function(x).detach()))
            self.assertEqual(torch._dynamo.explain(function)(x).graph_break_count, 1)

    def test_who_does_not_compile_imports_no_compiler(self):
        code = "import sys, torch; before = 'torch._dynamo' in sys.modules; import moeloom.torch; "
        self.assertEqual(python(code + "print('torch._dynamo' in sys.modules and not before)"), "False")
