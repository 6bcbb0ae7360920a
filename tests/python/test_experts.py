"""A layer's experts against the plain formula."""

import torch
from layers import EXPERTS, HIDDEN, INTERMEDIATE, TOKENS, TOP_K, layer, layer_inputs, stacks
from support import DTYPES, TOLERANCE, difference, gradients, plain_experts, random
from test_functions import FunctionTest

import moeloom
import moeloom.torch as mt


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

    def test_bf16_biases_have_gradients(self):
        x, idx, weights = layer_inputs(torch.bfloat16)
        given = [*stacks(torch.bfloat16), random(EXPERTS, 2 * INTERMEDIATE).bfloat16(), random(EXPERTS, HIDDEN)
                 .bfloat16()]
        found = []
        for tensors in (given, [given[0], given[1], given[2].float(), given[3].float()]):
            for grads in ("kept", "autograd"):
                leaves = [torch.nn.Parameter(t.clone()) for t in tensors]
                experts = mt.ExpertWeights(*leaves[:2], grads=grads, gate_up_bias=leaves[2], down_bias=leaves[3])
                mt.ExpertsFunction.apply(x, idx, weights, experts).float().sum().backward()
                found.append([leaf.grad for leaf in leaves])
        for one in found:
            self.assertEqual([grad.dtype for grad in one[:2]], [torch.bfloat16] * 2)
            for grad, wanted in zip(one, found[-1]):
                self.assertLess(difference(grad, wanted), TOLERANCE[torch.bfloat16])
        self.assertEqual([grad.dtype for grad in found[0][2:]], [torch.bfloat16] * 2)

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
