"""Every argument of every function, however it lies: the same numbers come out, or an error names the argument."""

import unittest
import warnings

import numpy as np
import torch
from support import difference, random

import moeloom
import moeloom.torch as mt
from moeloom import ops

CHOSEN = torch.tensor([[0, 1], [2, 1], [0, 2], [1, 2], [0, 1], [2, 0]])
COUNTS = torch.tensor([2, 0, 4])
X, WEIGHT, ROWS, WEIGHTS = random(6, 8), random(3, 8, 5), random(12, 8), random(6, 2).abs()
GATE_UP, DOWN, ANGLES = random(3, 10, 8), random(3, 8, 5), random(6, 2).repeat(1, 2)


def experts(x, topk_idx, topk_weights, gate_up, down):
    return ops.Experts(None, 3, gate_up, down).forward(x, topk_idx, topk_weights)[0]


def backward(x, topk_idx, topk_weights, gate_up, down, dy):
    layer = ops.Experts(None, 3, gate_up, down)
    return layer.backward(layer.forward(x, topk_idx, topk_weights)[1], dy)


LAYER = {"x": X, "topk_idx": CHOSEN, "topk_weights": WEIGHTS, "gate_up": GATE_UP, "down": DOWN}
OF_NUMPY = (
    (ops.gmm, {"x": X, "weight": WEIGHT, "counts": COUNTS}),
    (ops.gmm_grad, {"dy": random(6, 5), "x": X, "weight": WEIGHT, "counts": COUNTS}),
    (ops.swiglu, {"gate_up": X}),
    (ops.swiglu_grad, {"d": random(6, 4), "gate_up": X}),
    (lambda **named: ops.rmsnorm(eps=1e-6, **named), {"x": X, "weight": random(8), "gate": random(6, 8, seed=1)}),
    (lambda **named: ops.rmsnorm_grad(eps=1e-6, **named), {"dy": random(6, 8, seed=2), "x": X, "weight": random(8),
                                                           "gate": random(6, 8, seed=1)}),
    (ops.rope, {"x": random(6, 2, 4), "cos": ANGLES, "sin": ANGLES}),
    (lambda **named: ops.route(top_k=2, **named), {"logits": X, "bias": random(8)}),
    (ops.route_grad, {"d_topk_weights": WEIGHTS, "logits": X, "topk_idx": CHOSEN}),
    (lambda **named: ops.permute(num_experts=3, **named), {"x": X, "topk_idx": CHOSEN}),
    (ops.unpermute, {"rows": ROWS, "order": torch.arange(12), "topk_weights": WEIGHTS}),
    (experts, LAYER),
    (backward, {**LAYER, "dy": random(6, 8, seed=3)}),
)
STACKS = "gate_up", "down"  # NumPy's are not copied: where they do not lie as a stack they are refused


def unaligned(array):
    moved = np.ndarray(array.shape, array.dtype, buffer=bytearray(array.nbytes + 1), offset=1)
    moved[...] = array
    return moved


def between_elements(array):
    """Rows at a distance that is no multiple of an element's size."""
    moved = np.ndarray(array.shape, array.dtype, buffer=bytearray(2 * array.nbytes + 8),
                       strides=[step + step // array.strides[-1] if step > array.itemsize else step
                                for step in array.strides])
    moved[...] = array
    return moved


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


LIE = {
    "as it is": np.copy, "turned around": lambda a: a[..., ::-1].copy()[..., ::-1],
    "upside down": lambda a: a[::-1].copy()[::-1], "every other row": lambda a: np.repeat(a, 2, 0)[::2],
    "Fortran's": np.asfortranarray, "unaligned": unaligned, "between elements": between_elements, "read-only": frozen,
    "several times one": lambda a: np.broadcast_to(a, (3, *a.shape))[1],
}
REFUSED = {
    "of another byte order": lambda a: a.astype(a.dtype.newbyteorder()), "without a dimension": lambda a: a.flat[0],
    "complex": lambda a: a.astype("c8"), "bool": lambda a: a.astype("?"), "objects": lambda a: a.astype("O"),
    "long double": np.longdouble, "int16": lambda a: a.astype("i2"), "five dimensions":
    lambda a: a.reshape((1,) * (5 - a.ndim) + a.shape), "with a mask": lambda a: np.ma.masked_array(a, a > 0),
    "a record": lambda a: np.zeros(a.shape, [("a", "f4")]), "a text": lambda a: "x",
    "uneven": lambda a: [[1.0], [1.0, 2]], "dates": lambda a: a.astype("i8").astype("M8[s]"), "a set": lambda a: {1.0},
}
OF_TORCH = (
    (mt.GmmFunction.apply, {"x": X, "weight": WEIGHT, "group_list": COUNTS}),
    (lambda *all_: mt.HybridGmmFunction.apply(2, *all_),
     {"x 0": X[:2], "x 1": X[2:], "weight 0": WEIGHT[0], "weight 1": WEIGHT[1]}),
    (mt.grouped_mm, {"input": X, "weight": WEIGHT, "offs": COUNTS.cumsum(0).int()}),
    (mt.SwigluFunction.apply, {"gate_up": X}),
    (lambda x, weight, gate: mt.RMSNormFunction.apply(x, weight, 1e-6, 0.0, gate),
     {"x": X, "weight": random(8), "gate": random(6, 8, seed=1)}),
    (mt.RopeFunction.apply, {"q": random(1, 2, 6, 4), "k": random(1, 1, 6, 4), "cos": ANGLES, "sin": ANGLES}),
    (lambda x, topk_idx: mt.PermuteFunction.apply(x, topk_idx, 3), {"x": X, "topk_idx": CHOSEN}),
    (mt.UnpermuteFunction.apply, {"rows": ROWS, "order": torch.arange(12), "topk_weights": WEIGHTS}),
    (lambda x, topk_idx, topk_weights, gate_up, down, one, other: mt.ExpertsFunction.apply(
        x, topk_idx, topk_weights, mt.ExpertWeights(gate_up, down, gate_up_bias=one, down_bias=other)),
     {**LAYER, "gate_up_bias": random(3, 10), "down_bias": random(3, 8)}),
)


def of_inference(tensor):
    with torch.inference_mode():
        return tensor.clone()


TENSORS_LIE = {
    "as it is": torch.clone, "transposed": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
    "every other row": lambda t: t.repeat_interleave(2, 0)[::2], "expanded": lambda t: t.expand(3, *t.shape)[1],
    "a parameter": lambda t: torch.nn.Parameter(t.clone()) if t.is_floating_point() else t,
    "of inference": of_inference,
}
TENSORS_REFUSED = {
    "on meta": lambda t: t.to("meta"), "sparse": torch.Tensor.to_sparse, "sparse rows": torch.Tensor.to_sparse_csr,
    "of mkldnn": torch.Tensor.to_mkldnn, "bool": torch.Tensor.bool, "a text": lambda t: "x", "a set": lambda t: {1.0},
}


def outputs(result):
    return [torch.as_tensor(np.asarray(each)) if not isinstance(each, torch.Tensor) else each
            for each in (result if isinstance(result, tuple) else (result,))]


class Arrays(unittest.TestCase):
    def is_right_or_refused(self, call, wanted, refused):
        """refused: how the error may begin; None: it has to be right."""
        try:
            got = outputs(call())
        except (moeloom.Error, TypeError) as error:
            self.assertTrue(refused and str(error).startswith(refused), error)
        else:
            self.assertIsNot(wanted, None, "accepted")
            for one, other in zip(got, wanted):
                self.assertLess(difference(one.detach(), other.detach()), 1e-6)

    def test_of_numpy_are_right_or_refused(self):
        for number, (function, named) in enumerate(OF_NUMPY):
            arrays = {name: tensor.numpy() for name, tensor in named.items()}
            wanted = outputs(function(**arrays))
            for name, array in arrays.items():
                for how, lay in {**LIE, **REFUSED}.items():
                    with self.subTest(function=number, argument=name, how=how):
                        refused = name if how in REFUSED or how == "between elements" or name in STACKS else None
                        self.is_right_or_refused(lambda: function(**{**arrays, name: lay(array)}),
                                                 None if how in REFUSED else wanted, refused)

    def test_of_torch_are_right_or_refused(self):
        for number, (function, tensors) in enumerate(OF_TORCH):
            wanted = outputs(function(*tensors.values()))
            for name, tensor in tensors.items():
                for how, lay in {**TENSORS_LIE, **TENSORS_REFUSED}.items():
                    try:
                        with warnings.catch_warnings():  # torch's own, of forms that are new to it
                            warnings.simplefilter("ignore")
                            given = {**tensors, name: lay(tensor)}
                    except RuntimeError:
                        continue  # torch itself has no such
                    with self.subTest(function=number, argument=name, how=how):
                        self.is_right_or_refused(lambda: function(*given.values()),
                                                 None if how in TENSORS_REFUSED else wanted,
                                                 (name, f"every {name[:-2]}") if how in TENSORS_REFUSED else None)


if __name__ == "__main__":
    unittest.main()
