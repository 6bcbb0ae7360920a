"""A layer's experts: numbers, kept gradients, and what autograd does with layers."""

import copy
import io
import pickle
import unittest
from unittest import mock

import torch
from support import DTYPES, TOLERANCE, difference, gradients, plain_experts, random, same
from test_functions import FunctionTest
from torch.utils.checkpoint import checkpoint

import moeloom
import moeloom.torch as mt

TOKENS, HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 21, 24, 16, 6, 2


def layer_inputs(dtype=torch.float32, tokens=TOKENS):
    scores = torch.softmax(random(tokens, EXPERTS, seed=5), -1)
    scores[:, 3] = 0  # an expert without a row
    weights, idx = torch.topk(scores, TOP_K, -1)
    return random(tokens, HIDDEN, dtype=dtype), idx, weights.to(dtype)


def stacks(dtype=torch.float32):
    return (random(EXPERTS, 2 * INTERMEDIATE, HIDDEN, dtype=dtype) / 4, random(EXPERTS, HIDDEN, INTERMEDIATE,
                                                                               dtype=dtype) / 4)


def layer(grads="kept", frozen=()):
    gate_up, down = (torch.nn.Parameter(t) for t in stacks())
    for name in frozen:
        {"gate_up": gate_up, "down": down}[name].requires_grad_(False)
    return mt.ExpertWeights(gate_up, down, grads=grads)


def backward(experts, scale=1.0, run=lambda f, *t: f(*t), **options):
    """One forward and backward; returns the gradient of x."""
    x, idx, weights = layer_inputs()
    x = x.requires_grad_()
    y = run(lambda x: mt.ExpertsFunction.apply(x, idx, weights, experts), x, **options)
    (scale * y).sum().backward()
    return x.grad


class Numbers(FunctionTest):
    def test_are_those_of_the_plain_formula(self):
        for dtype in DTYPES:
            for tokens in (TOKENS, 1, 0):
                x, idx, weights = layer_inputs(dtype, tokens)
                self.check(lambda x, w, *s: mt.ExpertsFunction.apply(x, idx, w, mt.ExpertWeights(*s, grads="autograd")),
                           lambda x, w, *s: plain_experts(x, idx, w, *s), [x, weights, *stacks(dtype)], dtype)

    def test_have_every_kind(self):
        x, idx, weights = layer_inputs()
        for kind in ("silu", "gelu", "gelu_pytorch_tanh", "gpt_oss"):
            self.check(
                lambda x, w, *s: mt.ExpertsFunction.apply(x, idx, w, mt.ExpertWeights(*s, kind, grads="autograd")),
                lambda x, w, *s: plain_experts(x, idx, w, *s, kind), [x, weights, *stacks()], torch.float32, kind)

    def test_an_index_of_nobody_has_no_expert(self):
        x, idx, weights = layer_inputs()
        idx = idx.clone()
        idx[::2, 0], idx[1::2, 1] = -1, EXPERTS
        self.check(lambda x, w, *s: mt.ExpertsFunction.apply(x, idx, w, mt.ExpertWeights(*s, grads="autograd")),
                   lambda x, w, *s: plain_experts(x, idx, w, *s), [x, weights, *stacks()], torch.float32)

    def test_biases_have_gradients(self):
        x, idx, weights = layer_inputs()
        biases = random(EXPERTS, 2 * INTERMEDIATE), random(EXPERTS, HIDDEN)

        def ours(x, w, gate_up, down, gate_up_bias, down_bias):
            return mt.ExpertsFunction.apply(x, idx, w, mt.ExpertWeights(
                gate_up, down, grads="autograd", gate_up_bias=gate_up_bias, down_bias=down_bias))

        def plain(x, w, gate_up, down, gate_up_bias, down_bias):
            y = torch.zeros_like(x)
            for e in range(EXPERTS):
                gate, up = (x @ gate_up[e].T + gate_up_bias[e]).chunk(2, -1)
                share = (w * (idx == e)).sum(-1, keepdim=True)
                y = y + share * ((torch.nn.functional.silu(gate) * up) @ down[e].T + down_bias[e])
            return y
        self.check(ours, plain, [x, weights, *stacks(), *biases], torch.float32)

    def test_half_precision_weights(self):
        x, idx, weights = layer_inputs(torch.float16)
        experts = mt.ExpertWeights(*(torch.nn.Parameter(t) for t in stacks(torch.float16)))
        y = mt.ExpertsFunction.apply(x, idx, weights, experts)
        y.sum().backward()
        self.assertLess(difference(y, plain_experts(x.double(), idx, weights.double(), *(
            t.double() for t in stacks(torch.float16)))), TOLERANCE[torch.float16])
        self.assertEqual(experts.gate_up.grad.dtype, torch.float16)

    def test_moe_is_router_and_experts(self):
        for normalize in (True, False):
            torch.manual_seed(1)
            moe = mt.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, normalize=normalize)
            x = random(2, 7, HIDDEN).requires_grad_()
            names = [name for name, _ in moe.named_parameters()]
            self.assertEqual(names, ["gate.weight", "experts.gate_up_proj", "experts.down_proj"])

            def plain(x, gate, gate_up, down):
                tokens = x.reshape(-1, HIDDEN)
                weights, idx = torch.topk(torch.softmax(tokens @ gate.T, -1), TOP_K, -1)
                weights = weights / weights.sum(-1, keepdim=True) if normalize else weights
                return plain_experts(tokens, idx, weights, gate_up, down).view(x.shape)
            wanted = gradients(plain, [t.detach().double() for t in (x, *moe.parameters())])
            y = moe(x)
            y.backward(random(*y.shape, dtype=torch.float64, seed=99).float())
            for got, other in zip([y, x.grad, *(p.grad for p in moe.parameters())], wanted):
                self.assertLess(difference(got, other), 5e-6)

    def test_says_what_does_not_fit(self):
        x, idx, weights = layer_inputs()
        experts = layer()
        for error, call in (
                (moeloom.ShapeError, lambda: mt.ExpertsFunction.apply(x[:-1], idx, weights, experts)),
                (moeloom.ShapeError, lambda: mt.ExpertsFunction.apply(x[:, :-1], idx, weights, experts)),
                (moeloom.ShapeError, lambda: mt.ExpertsFunction.apply(x, idx + EXPERTS, weights, experts)),
                (moeloom.ConfigError, lambda: mt.ExpertWeights(*stacks(), grads="thrown away")),
                (moeloom.ConfigError, lambda: mt.ExpertsFunction.apply(x, idx, weights, mt.ExpertWeights(
                    *stacks(), kind="relu6"))),
                (moeloom.ConfigError, lambda: mt.MoE(8, 8, 4, 5)),
                (TypeError, lambda: mt.ExpertsFunction.apply(x, idx.float(), weights, experts)),
                (TypeError, lambda: mt.ExpertsFunction.apply(x.double(), idx, weights, experts))):
            with self.assertRaises(error) as caught:
                call()
            self.assertTrue(str(caught.exception))


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

    def test_a_frozen_stack_has_none(self):
        experts = layer(frozen=["gate_up"])
        backward(experts)
        self.assertIsNone(experts.gate_up.grad)
        self.assertLess(difference(experts.down.grad, self.wanted("down")), 2e-6)
        frozen = layer(frozen=["gate_up", "down"])
        self.assertTrue(same(backward(frozen), backward(layer())))
        self.assertIsNone(frozen.down.grad)

    @staticmethod
    def wanted(name):
        experts = layer(grads="autograd")
        backward(experts)
        return getattr(experts, name).grad

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
        self.assertTrue(same(d_gate_up, self.wanted("gate_up")))
        self.assertIsNone(experts.gate_up.grad)


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
        self.assertLess(difference(first.gate_up.grad, KeptGradients.wanted("gate_up")), 2e-6)

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

    def test_a_replaced_parameter_is_the_one_that_counts(self):
        self.moe.experts.down_proj = torch.nn.Parameter(torch.zeros_like(self.moe.experts.down_proj))
        self.assertEqual(float(self.moe(self.x).detach().abs().max()), 0.0)


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
