"""The kernels on NumPy's arrays, float32 or float16, each with its gradient.

Letters: T tokens, D hidden, F intermediate, E experts, e of them on this rank, K chosen by each token, R rows (one
for each token and expert that it chose, grouped by expert), C and N depth and width of a product, H heads of width d,
of which the first r numbers turn. Results have the dtype of the first argument.
"""

from __future__ import annotations

from ctypes import byref, c_int64, pointer
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from . import _words
from ._group import group_of
from ._library import Handle, library
from ._passes import next_layer
from ._stacks import Stacks, Target
from ._table import IN_OUT, OUT_IN, REPLACE, Array, GluSettings, Router, Weights
from .arrays import of_ndarray, require_dims
from .errors import SpentError

Numbers = NDArray[Any]

_lib = library()


def _given(value: Any, name: str, letters: Optional[Sequence[str]] = None) -> Numbers:
    """The array as the library reads it: itself, or a copy where its last stride is not 1."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} has a mask, which the kernels do not know; expected an array without, as "
                        f"{name}.filled(0) is")
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
    except ValueError:  # of lists, of which one is longer than another
        array = np.empty(0, object)
    if array.dtype.kind in "OSU":
        raise TypeError(f"{name} is {value!r:.80}, a {type(value).__name__}; expected an array of numbers")
    if letters is not None:
        require_dims(array, letters, name)
    if array.ndim and array.shape[-1] > 1 and array.strides[-1] != array.itemsize or min(array.strides, default=0) < 0:
        return np.ascontiguousarray(array)
    return array


def _view(array: Optional[Numbers], name: str = "a result") -> Optional[Array]:
    return None if array is None else of_ndarray(array, name)


def _weights(array: Numbers, transposed: bool, name: str) -> Weights:
    return Weights(pointer(of_ndarray(array, name)), 1, OUT_IN if transposed else IN_OUT)


def gmm(x: Numbers, weight: Numbers, counts: Numbers, transposed: bool = False) -> Numbers:
    """x [R, C] grouped into counts [E] rows, weight [E, C, N] -> [R, N]. transposed: weight [E, N, C]."""
    x, weight = _given(x, "x", "RC"), _given(weight, "weight", "ENC" if transposed else "ECN")
    counts = _given(counts, "counts", "E")
    y = np.empty((x.shape[0], weight.shape[1 if transposed else 2]), x.dtype)
    _lib.ml_gmm(_view(x, "x"), _weights(weight, transposed, "weight"), _view(counts, "counts"), _view(y))
    return y


def gmm_grad(dy: Numbers, x: Numbers, weight: Numbers, counts: Numbers,
             transposed: bool = False) -> Tuple[Numbers, Numbers]:
    """dy [R, N] -> dx [R, C], dweight of weight's shape, zeros for an expert without rows."""
    dy, x = _given(dy, "dy", "RN"), _given(x, "x", "RC")
    weight, counts = _given(weight, "weight", "ENC" if transposed else "ECN"), _given(counts, "counts", "E")
    dx, dweight = np.empty(x.shape, x.dtype), np.empty(weight.shape, weight.dtype)
    counts_view, dy_view, x_view = _view(counts, "counts"), _view(dy, "dy"), _view(x, "x")
    _lib.ml_gmm_input_grad(dy_view, _weights(weight, transposed, "weight"), counts_view, _view(dx))
    _lib.ml_gmm_weight_grad(dy_view, x_view, counts_view, _weights(dweight, transposed, "dweight"), REPLACE)
    return dx, dweight


def swiglu(gate_up: Numbers, kind: str = "silu") -> Numbers:
    """gate_up [R, 2F], gate first -> act(gate) * up [R, F]. kind: transformers' hidden_act, or "gpt_oss"."""
    gate_up = _given(gate_up, "gate_up", ("R", "2F"))
    out = np.empty((gate_up.shape[0], gate_up.shape[1] // 2), gate_up.dtype)
    _lib.ml_glu(GluSettings(kind=_words.text(kind, "kind")), _view(gate_up, "gate_up"), None, _view(out))
    return out


def swiglu_grad(d: Numbers, gate_up: Numbers, kind: str = "silu") -> Numbers:
    """d [R, F], gradient of swiglu's result -> d_gate_up [R, 2F]."""
    d, gate_up = _given(d, "d", "RF"), _given(gate_up, "gate_up", ("R", "2F"))
    d_gate_up = np.empty(gate_up.shape, gate_up.dtype)
    _lib.ml_glu_grad(GluSettings(kind=_words.text(kind, "kind")), _view(gate_up, "gate_up"), None, _view(d, "d"),
                     _view(d_gate_up), None)
    return d_gate_up


def rmsnorm(x: Numbers, weight: Numbers, eps: float, offset: float = 0.0,
            gate: Optional[Numbers] = None) -> Numbers:
    """x [T, D] / sqrt(mean(x^2) + eps) * (offset + weight [D]), times silu(gate [T, D]) if there is a gate."""
    x, weight = _given(x, "x"), _given(weight, "weight", "D")
    eps, offset = _words.number(eps, "eps"), _words.number(offset, "offset")
    gate = None if gate is None else _given(gate, "gate")
    y = np.empty(x.shape, x.dtype)
    _lib.ml_rmsnorm(_view(x, "x"), _view(gate, "gate"), _view(weight, "weight"), eps, offset, _view(y), None)
    return y


def rmsnorm_grad(dy: Numbers, x: Numbers, weight: Numbers, eps: float, offset: float = 0.0,
                 gate: Optional[Numbers] = None) -> Tuple[Numbers, Numbers, Optional[Numbers]]:
    """dy [T, D] -> dx, dweight, and dgate or None."""
    dy, x, weight = _given(dy, "dy"), _given(x, "x"), _given(weight, "weight", "D")
    eps, offset = _words.number(eps, "eps"), _words.number(offset, "offset")
    gate = None if gate is None else _given(gate, "gate")
    dx, dweight = np.empty(x.shape, x.dtype), np.empty(weight.shape, weight.dtype)
    dgate = None if gate is None else np.empty(gate.shape, gate.dtype)
    _lib.ml_rmsnorm_grad(_view(dy, "dy"), _view(x, "x"), _view(gate, "gate"), _view(weight, "weight"), eps, offset,
                         None, _view(dx), _view(dgate), _view(dweight), REPLACE)
    return dx, dweight, dgate


def rope(x: Numbers, cos: Numbers, sin: Numbers, interleaved: _words.Interleaved = False) -> Numbers:
    """x [T, H, d], cos and sin [T, r] -> x with the first r numbers of each head turned.

    Pairs are i and i + r/2, or where interleaved 2i and 2i + 1; "to_halves": read as those, written as the former, as
    DeepSeek does. cos holds each angle twice, as Hugging Face's rotary embeddings return it.
    """
    return _turned(_lib.ml_rope, x, cos, sin, interleaved, "x")


def rope_grad(dy: Numbers, cos: Numbers, sin: Numbers,
              interleaved: _words.Interleaved = False) -> Numbers:
    """dy [T, H, d] -> dx."""
    return _turned(_lib.ml_rope_grad, dy, cos, sin, interleaved, "dy")


def _turned(function: Any, x: Numbers, cos: Numbers, sin: Numbers, interleaved: _words.Interleaved,
            name: str) -> Numbers:
    x, cos, sin = _given(x, name, "THd"), _given(cos, "cos", "Tr"), _given(sin, "sin", "Tr")
    y = np.empty(x.shape, x.dtype)
    function(_view(x, name), _view(cos, "cos"), _view(sin, "sin"), _words.pairs(interleaved), _view(y))
    return y


def _router(top_k: int, score: str, normalize: bool, bias: Optional[Numbers] = None) -> Router:
    router = Router(top_k=top_k, score=_words.score(score), normalize=bool(normalize), epsilon=_words.EPSILON[score])
    if bias is not None:
        router.bias = pointer(of_ndarray(bias, "bias"))
    return router


def route(logits: Numbers, top_k: int, *, score: str = "softmax", normalize: bool = True,
          bias: Optional[Numbers] = None) -> Tuple[Numbers, Numbers]:
    """logits [T, E] -> topk_idx [T, K] by falling score, topk_weights [T, K].

    score: "softmax", "sigmoid" (DeepSeek-V3), or "softmax_of_chosen" (GPT-OSS). normalize: weights are divided by
    their sum. bias [E] is added for the choice alone.
    """
    logits = _given(logits, "logits", "TE")
    bias = None if bias is None else _given(bias, "bias", "E")
    top_k = _words.whole(top_k, "top_k")
    shape = (logits.shape[0], top_k)
    topk_idx, topk_weights = np.empty(shape, np.int64), np.empty(shape, logits.dtype)
    _lib.ml_route(_router(top_k, score, normalize, bias), _view(logits, "logits"), _view(topk_idx), _view(topk_weights))
    return topk_idx, topk_weights


def route_grad(d_topk_weights: Numbers, logits: Numbers, topk_idx: Numbers, *, score: str = "softmax",
               normalize: bool = True) -> Numbers:
    """d_topk_weights [T, K], logits and topk_idx of the forward -> d_logits [T, E]."""
    d_topk_weights = _given(d_topk_weights, "d_topk_weights", "TK")
    logits, topk_idx = _given(logits, "logits", "TE"), _given(topk_idx, "topk_idx", "TK")
    d_logits = np.empty(logits.shape, logits.dtype)
    _lib.ml_route_grad(_router(topk_idx.shape[1], score, normalize), _view(d_topk_weights, "d_topk_weights"),
                       _view(logits, "logits"), _view(topk_idx, "topk_idx"), _view(d_logits))
    return d_logits


def permute(x: Numbers, topk_idx: Numbers, num_experts: int) -> Tuple[Numbers, Numbers, Numbers]:
    """x [T, D], topk_idx [T, K] -> rows [R, D] by expert, then token; order [R], token * K + slot; counts [E].

    An index of -1 or num_experts is no expert: such a slot has no row.
    """
    x, topk_idx = _given(x, "x", "TD"), _given(topk_idx, "topk_idx", "TK")
    num_experts = _words.whole(num_experts, "num_experts")
    order, counts, rows = np.empty(topk_idx.size, np.int64), np.empty(num_experts, np.int64), c_int64()
    _lib.ml_permute_plan(_view(topk_idx, "topk_idx"), num_experts, _view(order), _view(counts), byref(rows))
    order = order[:rows.value]
    taken = np.empty((rows.value, x.shape[1]), x.dtype)
    _lib.ml_permute(_view(x, "x"), _view(order), topk_idx.shape[1], _view(taken))
    return taken, order, counts


def unpermute(rows: Numbers, order: Numbers, topk_weights: Numbers) -> Numbers:
    """rows [R, D], order [R], topk_weights [T, K] -> y [T, D], sums of each token's weighted rows."""
    rows, order = _given(rows, "rows", "RD"), _given(order, "order", "R")
    topk_weights = _given(topk_weights, "topk_weights", "TK")
    y = np.empty((topk_weights.shape[0], rows.shape[1]), rows.dtype)
    _lib.ml_unpermute(_view(rows, "rows"), _view(order, "order"), _view(topk_weights, "topk_weights"),
                      topk_weights.shape[1], _view(y))
    return y


class Trip:
    """What a forward leaves for its backward, which may be called once."""

    def __init__(self, handle: Handle, shapes: List[Tuple[int, ...]], dtypes: List[Any]) -> None:
        self.handle: Optional[Handle] = handle
        self.shapes, self.dtypes = shapes, dtypes

    def held(self) -> Handle:
        if self.handle is None:
            raise SpentError("this forward's backward was called already; call forward again")
        return self.handle


class Experts:
    """This rank's experts of a layer: gate_up [e, 2F, D] and down [e, D, F], read where they lie at each call.

    mesh None: one process with all of them. Else every rank of the mesh makes the same calls in the same order.
    """

    def __init__(self, mesh: Any, num_experts: int, gate_up: Numbers, down: Numbers, kind: str = "silu") -> None:
        self.gate_up, self.down = _given(gate_up, "gate_up", ("e", "2F", "D")), _given(down, "down", "eDF")
        self._mesh = mesh  # which closes when nobody holds it
        self._experts = group_of(mesh).experts(num_experts, kind, next_layer(mesh))

    def _stacks(self) -> Stacks:
        return Stacks(of_ndarray(self.gate_up, "gate_up"), of_ndarray(self.down, "down"))

    def forward(self, x: Numbers, topk_idx: Numbers, topk_weights: Numbers) -> Tuple[Numbers, Trip]:
        """x [T, D], topk_idx and topk_weights [T, K] -> y [T, D], sums of weight * expert, and the trip."""
        x = _given(x, "x", "TD")
        topk_idx, topk_weights = _given(topk_idx, "topk_idx", "TK"), _given(topk_weights, "topk_weights", "TK")
        y = np.empty(x.shape, x.dtype)
        handle = self._experts.forward(self._stacks(), of_ndarray(x, "x"), of_ndarray(topk_idx, "topk_idx"),
                                       of_ndarray(topk_weights, "topk_weights"), of_ndarray(y, "y"), keeps_trip=True)
        assert handle is not None
        return y, Trip(handle, [x.shape, topk_weights.shape], [x.dtype, topk_weights.dtype])

    def backward(self, trip: Trip, dy: Numbers) -> Tuple[Numbers, Numbers, Numbers, Numbers]:
        """dy [T, D] -> dx, d_topk_weights, d_gate_up, d_down; the last two in float32."""
        if not isinstance(trip, Trip):
            raise TypeError(f"trip is a {type(trip).__name__}; expected what forward returned beside y")
        dy = _given(dy, "dy", "TD")
        dx, d_topk_weights = (np.empty(shape, dtype) for shape, dtype in zip(trip.shapes, trip.dtypes))
        grads = {"gate_up": np.empty(self.gate_up.shape, np.float32), "down": np.empty(self.down.shape, np.float32)}
        targets: Dict[str, Optional[Target]] = {name: Target(of_ndarray(grad, name)) for name, grad in grads.items()}
        self._experts.backward(self._stacks(), trip.held(), of_ndarray(dy, "dy"), of_ndarray(dx, "dx"),
                               of_ndarray(d_topk_weights, "d_topk_weights"), targets)
        trip.handle = None  # not before: what was refused may be called again
        return dx, d_topk_weights, grads["gate_up"], grads["down"]
