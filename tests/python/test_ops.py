"""NumPy's ops against formulas in float64, their gradients against central differences of these."""

import unittest

import numpy as np

import moeloom
from moeloom import ops
from moeloom._library import library

RNG = np.random.default_rng(11)


def random(*shape):
    return RNG.standard_normal(shape)


def silu(x):
    return x / (1 + np.exp(-x))


def plain_gmm(x, weight, counts, transposed=False):
    ends = np.cumsum(counts)
    return np.concatenate([x[end - n:end] @ (w.T if transposed else w) for end, n, w in zip(ends, counts, weight)])


def plain_swiglu(gate_up, kind="silu"):
    gate, up = np.split(gate_up, 2, axis=-1)
    if kind == "gpt_oss":
        gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
        return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
    if kind == "gelu_pytorch_tanh":
        return gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up
    return silu(gate) * up


def plain_rmsnorm(x, weight, eps, offset=0.0, gate=None):
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (offset + weight)
    return y if gate is None else y * silu(gate)


def plain_rope(x, cos, sin, interleaved=False):
    r = cos.shape[-1]
    cos, sin, head = cos[:, None], sin[:, None], x[..., :r]
    if interleaved:
        half = np.stack([-head[..., 1::2], head[..., ::2]], -1).reshape(head.shape)
    else:
        half = np.concatenate([-head[..., r // 2:], head[..., :r // 2]], -1)
    return np.concatenate([head * cos + half * sin, x[..., r:]], -1)


def plain_weights(logits, idx, score, normalize):
    if score == "sigmoid":
        scores = 1 / (1 + np.exp(-logits))
    else:
        scores = np.exp(logits - logits.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
    chosen = np.take_along_axis(scores, idx, -1)
    return chosen / chosen.sum(-1, keepdims=True) if normalize or score == "softmax_of_chosen" else chosen


def plain_experts(x, idx, weights, gate_up, down):
    y = np.zeros_like(x)
    for expert in range(len(gate_up)):
        share = (weights * (idx == expert)).sum(-1, keepdims=True)
        y += share * (plain_swiglu(x @ gate_up[expert].T) @ down[expert].T)
    return y


def central_differences(function, arrays, d_result, step=1e-5):
    """Of each array the gradient of sum(function(*arrays) * d_result)."""
    gradients = []
    for array in arrays:
        gradient = np.empty_like(array)
        for place in np.ndindex(array.shape):
            before = array[place]
            values = []
            for moved in (before + step, before - step):
                array[place] = moved
                values.append((function(*arrays) * d_result).sum())
            array[place] = before
            gradient[place] = (values[0] - values[1]) / (2 * step)
        gradients.append(gradient)
    return gradients


def f32(*arrays):
    return [a.astype(np.float32) for a in arrays]


class OpsTest(unittest.TestCase):
    def close(self, got, wanted, tolerance=5e-6):
        self.assertEqual((got.shape, got.dtype), (wanted.shape, np.float32))
        if wanted.size:
            self.assertLess(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-3), tolerance)

    def check(self, forward, backward, plain, arrays):
        """backward(dy, *arrays) -> gradients of all arrays."""
        wanted = plain(*arrays)
        self.close(forward(*f32(*arrays)), wanted)
        d_result = random(*wanted.shape)
        for got, other in zip(backward(*f32(d_result, *arrays)), central_differences(plain, arrays, d_result)):
            self.close(got, other)


class Ops(OpsTest):
    def test_gmm(self):
        for counts in ([2, 0, 3], [0, 0, 0], [0, 5, 0]):
            counts = np.array(counts)
            for transposed in (False, True):
                weight = random(3, 6, 4) if transposed else random(3, 4, 6)
                self.check(lambda x, w: ops.gmm(x, w, counts, transposed),
                           lambda dy, x, w: ops.gmm_grad(dy, x, w, counts, transposed),
                           lambda x, w: plain_gmm(x, w, counts, transposed), [random(counts.sum(), 4), weight])

    def test_swiglu(self):
        for kind in ("silu", "gelu_pytorch_tanh", "gpt_oss"):
            for rows in (3, 1, 0):
                self.check(lambda x: ops.swiglu(x, kind), lambda d, x: [ops.swiglu_grad(d, x, kind)],
                           lambda x: plain_swiglu(x, kind), [random(rows, 10)])

    def test_rmsnorm(self):
        for offset in (0.0, 1.0):
            for rows in (3, 0):
                self.check(lambda x, w: ops.rmsnorm(x, w, 1e-5, offset),
                           lambda dy, x, w: ops.rmsnorm_grad(dy, x, w, 1e-5, offset)[:2],
                           lambda x, w: plain_rmsnorm(x, w, 1e-5, offset), [random(rows, 8), random(8)])
                self.check(lambda x, w, g: ops.rmsnorm(x, w, 1e-5, offset, g),
                           lambda dy, x, w, g: ops.rmsnorm_grad(dy, x, w, 1e-5, offset, g),
                           lambda x, w, g: plain_rmsnorm(x, w, 1e-5, offset, g),
                           [random(rows, 8), random(8), random(rows, 8)])
        self.assertIsNone(ops.rmsnorm_grad(*f32(random(2, 8), random(2, 8), random(8)), 1e-5)[2])

    def test_rope(self):
        for turned in (8, 4):
            for interleaved in (False, True):
                angle = random(5, turned // 2)
                angle = angle.repeat(2, -1) if interleaved else np.concatenate([angle, angle], -1)
                cos, sin = f32(np.cos(angle), np.sin(angle))
                self.check(lambda x: ops.rope(x, cos, sin, interleaved),
                           lambda dy, x: [ops.rope_grad(dy, cos, sin, interleaved)],
                           lambda x: plain_rope(x, cos, sin, interleaved), [random(5, 2, 8)])

    def test_route(self):
        logits = random(7, 6)
        for score in ("softmax", "sigmoid", "softmax_of_chosen"):
            for normalize in (True, False):
                idx, weights = ops.route(*f32(logits), 3, score=score, normalize=normalize)
                self.assertEqual(idx.dtype, np.int64)
                np.testing.assert_array_equal(idx, np.argsort(-logits, -1)[:, :3])
                self.check(lambda x: ops.route(x, 3, score=score, normalize=normalize)[1],
                           lambda d, x: [ops.route_grad(d, x, idx, score=score, normalize=normalize)],
                           lambda x: plain_weights(x, idx, score, normalize), [logits])

    def test_route_has_a_bias_of_the_choice_alone(self):
        logits, bias = f32(random(7, 6), np.array([9, 0, 0, 0, 0, 0]))
        idx, weights = ops.route(logits, 2, score="sigmoid", bias=bias)
        self.assertTrue((idx[:, 0] == 0).all())
        self.close(weights, plain_weights(logits.astype(float), idx, "sigmoid", True))
        with self.assertRaisesRegex(moeloom.ConfigError, "guess"):
            ops.route(logits, 2, score="guess")

    def test_permute_and_unpermute(self):
        idx = np.array([[2, 0], [1, 2], [2, 4], [-1, 0]])
        x, weights = f32(random(4, 6), random(4, 2))
        rows, order, counts = ops.permute(x, idx, 4)
        self.assertEqual((order.tolist(), counts.tolist()), ([1, 7, 2, 0, 3, 4], [2, 1, 3, 0]))
        np.testing.assert_array_equal(rows, x[order // 2])
        share = (weights * ((idx >= 0) & (idx < 4))).sum(-1, keepdims=True)
        self.close(ops.unpermute(rows, order, weights), x.astype(float) * share)
        empty, _, counts = ops.permute(x[:0], idx[:0], 4)
        self.assertEqual((empty.shape, counts.tolist()), ((0, 6), [0, 0, 0, 0]))

    def test_experts(self):
        idx = np.array([[0, 2], [2, 0], [4, 2], [-1, 0], [0, 5]])  # of 5 experts: 1 and 3 have nothing
        arrays = [random(5, 4), random(5, 2), random(5, 6, 4), random(5, 4, 3)]

        def ours(dy, x, weights, gate_up, down):
            experts = ops.Experts(None, 5, gate_up, down)
            y, trip = experts.forward(x, idx, weights)
            gradients = experts.backward(trip, dy)
            with self.assertRaises(moeloom.SpentError):
                experts.backward(trip, dy)
            return y, gradients
        self.check(lambda *a: ours(a[0], *a)[0], lambda *a: ours(*a)[1],
                   lambda x, w, g, d: plain_experts(x, idx, w, g, d), arrays)

    def test_takes_any_layout(self):
        x, weight = f32(random(5, 4), random(2, 4, 6))
        counts = [2, 3]
        wanted = ops.gmm(x, weight, counts)
        for other in (x.T.copy().T, np.repeat(x, 2, 0)[::2], np.repeat(x, 2, 1)[:, ::2], x[::-1].copy()[::-1],
                      np.frombuffer(b"0" + x.tobytes(), np.float32, offset=1).reshape(x.shape)):
            np.testing.assert_array_equal(ops.gmm(other, weight, np.array(counts, np.int32)), wanted)
        half = ops.gmm(x.astype(np.float16), weight.astype(np.float16), counts)
        self.assertEqual(half.dtype, np.float16)
        self.assertLess(np.abs(half - wanted).max(), 2e-2)

    def test_says_what_does_not_fit(self):
        x, weight = f32(random(5, 4), random(2, 4, 6))
        for error, call in (
                (TypeError, lambda: ops.gmm(x.astype(float), weight, [2, 3])),
                (TypeError, lambda: ops.gmm(x, weight, [2.0, 3.0])),
                (TypeError, lambda: ops.gmm(x.astype(">f4"), weight, [2, 3])),
                (TypeError, lambda: ops.gmm(x.astype(complex), weight, [2, 3])),
                (moeloom.ShapeError, lambda: ops.gmm(x, weight, [2, 4])),
                (moeloom.ShapeError, lambda: ops.gmm(x, weight[0], [2, 3])),
                (moeloom.ShapeError, lambda: ops.gmm(x, weight, [2, 3], transposed=True)),
                (moeloom.ShapeError, lambda: ops.swiglu(x[:, :3])),
                (moeloom.ShapeError, lambda: ops.permute(x, np.full((5, 1), 7), 4)),
                (moeloom.ShapeError, lambda: ops.route(x, 5)),
                (moeloom.ConfigError, lambda: ops.swiglu(x, "relu6"))):
            with self.assertRaises(error) as caught:
                call()
            self.assertTrue(str(caught.exception))

    def test_a_wrong_type_is_a_type_error(self):
        x, idx = np.ones((5, 4), np.float32), np.zeros((5, 1), np.int64)
        d = x[0]
        experts = ops.Experts(None, 2, np.zeros((2, 4, 4), np.float32), np.zeros((2, 4, 2), np.float32))
        for call in (lambda: ops.rmsnorm(x, d, "x"), lambda: ops.rmsnorm(x, d, "1"), lambda: ops.rmsnorm(x, d, None),
                     lambda: ops.rmsnorm(x, d, 1e-6, offset=[]), lambda: ops.rmsnorm_grad(x, x, d, "x"),
                     lambda: ops.rmsnorm(x, None, 1e-6), lambda: ops.rmsnorm("x", d, 1e-6),
                     lambda: ops.swiglu(x, None), lambda: ops.swiglu(x, 5),
                     lambda: ops.swiglu_grad(x[:, :2], x, b"silu"),
                     lambda: ops.route(x, "2"), lambda: ops.route(x, 1.5), lambda: ops.route(x, 2, score=None),
                     lambda: ops.route(x, 2, score=["softmax"]), lambda: ops.permute(x, idx, "4"),
                     lambda: ops.permute(x, idx, 4.0), lambda: ops.Experts("ep", 2, experts.gate_up, experts.down),
                     lambda: ops.Experts(None, "2", experts.gate_up, experts.down),
                     lambda: ops.Experts(None, 2, experts.gate_up, experts.down, None),
                     lambda: experts.backward(None, x), lambda: library().ml_set_threads("many")):
            with self.assertRaises(TypeError):
                call()
        with self.assertRaisesRegex(TypeError, "argument 1 of ml_set_threads is 'many', a str"):
            library().ml_set_threads("many")

    def test_numbers_of_numpy_are_numbers(self):
        x, idx = np.ones((5, 4), np.float32), np.zeros((5, 1), np.int64)
        same = np.testing.assert_array_equal
        same(ops.rmsnorm(x, x[0], np.float32(1e-6), np.float64(1)), ops.rmsnorm(x, x[0], 1e-6, 1))
        same(ops.route(x, np.int64(2))[0], ops.route(x, 2)[0])
        same(ops.permute(x, idx, np.int32(4))[2], ops.permute(x, idx, 4)[2])


class Arrays(unittest.TestCase):
    def test_dlpack_is_borrowed_where_it_lies(self):
        from moeloom.arrays import borrow

        class Foreign:
            """What knows DLPack alone."""

            def __init__(self, array):
                self.array = array

            def __dlpack__(self):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()
        x = np.arange(24, dtype=np.float32).reshape(4, 6)[1:, :4]
        for seen in (borrow(Foreign(x)), borrow(x)):
            self.assertEqual(seen.data, x.ctypes.data)
            self.assertEqual((list(seen.shape[:2]), list(seen.stride[:2]), seen.dtype), ([3, 4], [6, 1], 0))
        for value in ([1.0, 2.0], np.float32(1)):
            with self.assertRaises(TypeError):
                borrow(value)
        with self.assertRaises(moeloom.ShapeError):
            borrow(np.zeros((), np.float32))
