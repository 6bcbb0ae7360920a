"""Each Function against torch's autograd of the plain formula in float64."""

import unittest

import torch
from support import (DTYPES, LAYOUTS, TOLERANCE, difference, gradients, plain_gmm, plain_rmsnorm, plain_swiglu, random,
                     same)

import moeloom
import moeloom.torch as mt

GROUPS = ([5, 0, 7, 1], [0, 0, 13, 0], [0, 0, 0, 0], [1, 1, 1, 1], [64, 3, 0, 33])


class FunctionTest(unittest.TestCase):
    def check(self, ours, plain, tensors, dtype, what=""):
        """Every output and gradient, in every layout, and on a second time the same bits."""
        wanted = gradients(plain, [t.double() if t.is_floating_point() else t for t in tensors])
        first = None
        for name, layout in LAYOUTS.items():
            given = [layout(t) if t.is_floating_point() else t for t in tensors]
            got = gradients(ours, given)
            self.assertEqual(len(got), len(wanted))
            for i, (one, other) in enumerate(zip(got, wanted)):
                self.assertEqual(one.dtype, dtype)
                self.assertLess(difference(one, other), TOLERANCE[dtype], f"{what} {name} {dtype}, result {i}")
            first = first or got
            self.assertTrue(all(map(same, got, first)), f"{what} {name}: other bits")
        again = gradients(ours, given)
        self.assertTrue(all(map(same, got, again)), f"{what}: other bits when repeated")


class Gmm(FunctionTest):
    def test_is_the_loop_over_groups(self):
        for dtype in DTYPES:
            for counts in GROUPS:
                counts = torch.tensor(counts)
                x, weight = random(int(counts.sum()), 24, dtype=dtype), random(4, 24, 40, dtype=dtype)
                self.check(lambda x, w: mt.GmmFunction.apply(x, w, counts), lambda x, w: plain_gmm(x, w, counts),
                           [x, weight], dtype, f"counts {counts.tolist()}")

    def test_counts_may_be_int32(self):
        x, weight, counts = random(9, 8), random(3, 8, 16), torch.tensor([2, 3, 4])
        self.assertTrue(same(mt.gmm(x, weight, counts), mt.gmm(x, weight, counts.int())))

    def test_computes_what_is_asked_alone(self):
        x, weight, counts = random(9, 8), random(3, 8, 16).requires_grad_(), torch.tensor([2, 3, 4])
        mt.gmm(x, weight, counts).sum().backward()
        self.assertIsNone(x.grad)
        self.assertLess(difference(weight.grad[1], x[2:5].sum(0)[:, None].expand(8, 16)), 1e-6)

    def test_gradient_of_transformers_stacks_lies_as_they_do(self):
        weight = random(3, 16, 8).transpose(1, 2).requires_grad_()
        dweight, = torch.autograd.grad(mt.gmm(random(9, 8), weight, torch.tensor([2, 3, 4])).sum(), [weight])
        self.assertEqual(dweight.stride(), weight.stride())

    def test_grouped_mm_is_transformers(self):
        x, weight = random(12, 8), random(3, 8, 16)
        for ends in ([4, 4, 12], [0, 5, 9], [0, 0, 0]):
            offs, counts = torch.tensor(ends, dtype=torch.int32), torch.tensor(ends).diff(prepend=torch.tensor([0]))

            def plain(x, w):
                y = plain_gmm(x[:ends[-1]], w, counts)
                return torch.cat([y, y.new_zeros(12 - ends[-1], 16)])
            self.check(lambda x, w: mt.grouped_mm(x, w, offs), plain, [x, weight], torch.float32, f"offs {ends}")

    def test_grouped_mm_casts_input_to_the_dtype_of_weight(self):
        x, weight, offs = random(12, 8), random(3, 8, 16), torch.tensor([4, 4, 12], dtype=torch.int32)
        for rows, stack in ((x.bfloat16(), weight), (x, weight.bfloat16())):
            leaf = rows.clone().requires_grad_()
            y = mt.grouped_mm(leaf, stack, offs)
            self.assertTrue(same(y.detach(), mt.grouped_mm(rows.to(stack.dtype), stack, offs)))
            self.assertEqual(y.dtype, stack.dtype)
            y.sum().backward()
            self.assertEqual(leaf.grad.dtype, rows.dtype)

    def test_says_what_does_not_fit(self):
        x, weight = random(9, 8), random(3, 8, 16)
        for error, call in (
                (moeloom.ShapeError, lambda: mt.gmm(x, weight, torch.tensor([2, 3, 5]))),
                (moeloom.ShapeError, lambda: mt.gmm(x, weight, torch.tensor([2, 3, -5]))),
                (moeloom.ShapeError, lambda: mt.gmm(x[:, :7], weight, torch.tensor([2, 3, 4]))),
                (moeloom.ShapeError, lambda: mt.gmm(x, weight[0], torch.tensor([2, 3, 4]))),
                (moeloom.ShapeError, lambda: mt.grouped_mm(x, weight, torch.tensor([2, 3, 10]))),
                (TypeError, lambda: mt.gmm(x, weight, torch.tensor([2.0, 3.0, 4.0]))),
                (TypeError, lambda: mt.gmm(x.double(), weight, torch.tensor([2, 3, 4]))),
                (TypeError, lambda: mt.gmm(x.numpy(), weight, torch.tensor([2, 3, 4]))),
                (TypeError, lambda: mt.gmm(x.to("meta"), weight, torch.tensor([2, 3, 4])))):
            with self.assertRaises(error) as caught:
                call()
            self.assertTrue(str(caught.exception))


class HybridGmm(FunctionTest):
    def test_is_a_product_an_expert(self):
        for dtype in DTYPES:
            for counts in GROUPS:
                xs = [random(n, 24, dtype=dtype, seed=i) for i, n in enumerate(counts)]
                weights = [random(24, 40, dtype=dtype, seed=i) for i in range(4)]
                self.check(lambda *t: mt.HybridGmmFunction.apply(4, *t),
                           lambda *t: tuple(x @ w for x, w in zip(t[:4], t[4:])), [*xs, *weights], dtype,
                           f"counts {counts}")

    def test_results_may_be_changed_in_place(self):
        x, weight = random(3, 8).requires_grad_(), random(8, 4)
        first, second = mt.HybridGmmFunction.apply(2, x, random(2, 8), weight, weight)
        first += 1
        (first.sum() + second.sum()).backward()
        self.assertLess(difference(x.grad, weight.sum(1).expand(3, 8)), 1e-6)

    def test_says_what_does_not_fit(self):
        for tensors in ([random(3, 8), random(8, 4), random(8, 4)],
                        [random(3, 8), random(2, 7), random(8, 4), random(8, 4)],
                        [random(3, 8), random(2, 8), random(8, 4), random(8, 5)],
                        [random(3, 8), random(2, 8), random(8, 4), random(8, 4).bfloat16()]):
            with self.assertRaises(ValueError):
                mt.HybridGmmFunction.apply(2, *tensors)


class Elementwise(FunctionTest):
    def test_swiglu_has_every_kind(self):
        for dtype in DTYPES:
            for kind in ("silu", "gelu", "gelu_pytorch_tanh", "gpt_oss"):
                for shape in ((7, 24), (2, 3, 24), (0, 24), (1, 24)):
                    self.check(lambda t: mt.SwigluFunction.apply(t, kind), lambda t: plain_swiglu(t, kind),
                               [4 * random(*shape, dtype=dtype)], dtype, kind)
        with self.assertRaisesRegex(moeloom.ConfigError, "relu6"):
            mt.SwigluFunction.apply(random(2, 8), "relu6")

    def test_rmsnorm_has_offset_and_gate(self):
        for dtype in DTYPES:
            for offset in (0.0, 1.0):
                for shape in ((5, 24), (2, 3, 24), (2, 2, 2, 2, 24), (0, 24)):
                    x, weight, gate = (random(*s, dtype=dtype, seed=i) for i, s in enumerate((shape, (24,), shape)))
                    self.check(lambda x, w: mt.RMSNormFunction.apply(x, w, 1e-6, offset),
                               lambda x, w: plain_rmsnorm(x, w, 1e-6, offset), [x, weight], dtype)
                    self.check(lambda x, w, g: mt.RMSNormFunction.apply(x, w, 1e-6, offset, g),
                               lambda x, w, g: plain_rmsnorm(x, w, 1e-6, offset, g), [x, weight, gate], dtype)

    def test_rmsnorm_leaves_a_frozen_weight_alone(self):
        x, weight = random(5, 8).requires_grad_(), random(8)
        mt.RMSNormFunction.apply(x, weight, 1e-6).sum().backward()
        self.assertIsNotNone(x.grad)
        self.assertIsNone(weight.grad)


def _angles(batch, length, turned, interleaved):
    angle = random(batch, length, turned // 2, seed=3)
    angle = angle.repeat_interleave(2, -1) if interleaved else torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def _plain_rope(x, cos, sin, interleaved):
    """x [B, H, S, d]"""
    turned = cos.size(-1)
    x, rest = x[..., :turned], x[..., turned:]
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    if interleaved:
        half = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    else:
        half = torch.cat([-x[..., turned // 2:], x[..., :turned // 2]], -1)
    return torch.cat([x * cos + half * sin, rest], -1)


class Rope(FunctionTest):
    def test_turns_heads_of_every_layout(self):
        for dtype in DTYPES:
            for batch, turned, interleaved in ((2, 16, False), (1, 8, False), (2, 16, True), (1, 8, True)):
                q, k = random(2, 4, 5, 16, dtype=dtype), random(2, 1, 5, 16, dtype=dtype, seed=1)
                cos, sin = _angles(batch, 5, turned, interleaved)
                self.check(lambda q, k: mt.RopeFunction.apply(q, k, cos, sin, interleaved),
                           lambda q, k: tuple(_plain_rope(x, cos, sin, interleaved) for x in (q, k)), [q, k], dtype)

    def test_keeps_the_order_in_memory(self):
        q = random(2, 5, 4, 16).transpose(1, 2)
        cos, sin = _angles(2, 5, 16, False)
        for turned in mt.RopeFunction.apply(q, q, cos, sin):
            self.assertEqual(turned.stride(), q.stride())
            self.assertLess(difference(turned, _plain_rope(q, cos, sin, False)), 1e-6)

    def test_to_halves_has_the_same_products(self):
        q, k = random(1, 2, 5, 16), random(1, 2, 5, 16, seed=1)
        cos, sin = _angles(1, 5, 16, False)
        one = mt.RopeFunction.apply(q, k, cos, sin, "to_halves")
        other = mt.RopeFunction.apply(q, k, *_angles(1, 5, 16, True), True)
        self.assertLess(difference(one[0] @ one[1].mT, other[0] @ other[1].mT), 1e-5)
        with self.assertRaisesRegex(moeloom.ConfigError, "sideways"):
            mt.RopeFunction.apply(q, k, cos, sin, "sideways")


class Permute(FunctionTest):
    idx = torch.tensor([[2, 0], [1, 2], [2, 4], [-1, 0]])  # of 4 experts: the third's second and the last's first: none

    def test_rows_are_by_expert_then_token(self):
        x = random(4, 8)
        rows, order, counts = mt.PermuteFunction.apply(x, self.idx, 4)
        self.assertEqual(order.tolist(), [1, 7, 2, 0, 3, 4])
        self.assertEqual(counts.tolist(), [2, 1, 3, 0])
        self.assertTrue(same(rows, x[order // 2]))
        self.assertFalse(order.requires_grad)

    def test_there_and_back_is_a_weighted_sum(self):
        for dtype in DTYPES:
            for idx in (self.idx, self.idx[:1], self.idx[:0], torch.full((3, 2), 4)):
                x, weights = random(len(idx), 8, dtype=dtype), random(len(idx), 2, dtype=dtype)

                def ours(x, weights):
                    rows, order, _ = mt.PermuteFunction.apply(x, idx, 4)
                    return mt.UnpermuteFunction.apply(rows, order, weights)

                def plain(x, weights):
                    return x * (weights * ((idx >= 0) & (idx < 4))).sum(-1, keepdim=True)
                self.check(ours, plain, [x, weights], dtype)
