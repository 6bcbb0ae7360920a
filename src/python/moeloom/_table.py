"""What moeloom/c/moeloom.h declares, for ctypes: structs, constants, and a line a function."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from typing import Any, Dict, List, Tuple

ABI = 1
MAX_DIMS = 4
MAX_TENSOR_DIMS = 8

F32, BF16, F16, I64, I32, U8, F64 = range(7)
REPLACE, ADD = range(2)
OUT_IN, IN_OUT = range(2)
HALVES, INTERLEAVED, INTERLEAVED_TO_HALVES = range(3)
SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN = range(3)
CHUNKS_AUTO = -1


class Array(ctypes.Structure):
    """Numbers of the caller: shape and strides in elements, the last stride 1."""

    _fields_ = [("data", c_void_p), ("shape", c_int64 * MAX_DIMS), ("stride", c_int64 * MAX_DIMS),
                ("ndim", c_int32), ("dtype", c_int32)]

    owner: Any  # in Python alone: whose numbers they are


class Weights(ctypes.Structure):
    """Weights of E experts: one array of three dimensions, or a list of E arrays of two."""

    _fields_ = [("arrays", POINTER(Array)), ("count", c_int64), ("layout", c_int32)]


class Settings(ctypes.Structure):
    """A struct that begins with its size; fields that nobody names are 0."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **fields)


class GmmFacts(Settings):
    _fields_ = [("size", c_int64), ("ep", c_int64), ("experts", c_int64), ("hidden", c_int64),
                ("intermediate", c_int64), ("budget_bytes", c_int64), ("rows_per_expert", c_double),
                ("not_contiguous", c_int32)]


class GluSettings(Settings):
    _fields_ = [("size", c_int64), ("kind", c_char_p), ("sparsity", c_float), ("scale_inputs", c_int32)]


class Router(Settings):
    _fields_ = [("size", c_int64), ("top_k", c_int64), ("score", c_int32), ("normalize", c_int32),
                ("epsilon", c_float), ("scaling", c_float), ("groups", c_int64), ("kept_groups", c_int64),
                ("bias", POINTER(Array))]


class ExpertsSettings(Settings):
    _fields_ = [("size", c_int64), ("num_experts", c_int64), ("layer", c_int64), ("glu", POINTER(GluSettings)),
                ("dispatcher", c_char_p), ("chunks", c_int64), ("pretended_nodes", c_int64)]


class ExpertWeights(Settings):
    _fields_ = [("size", c_int64), ("gate_up", POINTER(Array)), ("down", POINTER(Array)),
                ("gate_up_bias", POINTER(Array)), ("down_bias", POINTER(Array))]


class ExpertGrads(Settings):
    _fields_ = [("size", c_int64), ("gate_up", POINTER(Array)), ("down", POINTER(Array)),
                ("gate_up_bias", POINTER(Array)), ("down_bias", POINTER(Array)), ("gate_up_mode", c_int32),
                ("down_mode", c_int32), ("gate_up_bias_mode", c_int32), ("down_bias_mode", c_int32)]


class AdamWSettings(Settings):
    _fields_ = [("size", c_int64), ("learning_rate", c_double), ("beta1", c_double), ("beta2", c_double),
                ("epsilon", c_double), ("weight_decay", c_double), ("grad_scale", c_double), ("time", c_int64),
                ("seed", c_uint64)]


class Tensor(ctypes.Structure):
    """A tensor of a safetensors folder."""

    _fields_ = [("name", c_char_p), ("dtype", c_char * 16), ("ndim", c_int64),
                ("shape", c_int64 * MAX_TENSOR_DIMS)]


# What the words of the table are. `handle`: of a group, experts, a trip, a folder or shards; `new`: where an open
# function writes one.
_TYPES: Dict[str, Any] = {
    "array": POINTER(Array), "arrays": POINTER(POINTER(Array)), "weights": POINTER(Weights),
    "facts": POINTER(GmmFacts), "glu": POINTER(GluSettings), "router": POINTER(Router),
    "settings": POINTER(ExpertsSettings), "expert_weights": POINTER(ExpertWeights),
    "expert_grads": POINTER(ExpertGrads), "adamw": POINTER(AdamWSettings), "tensor": POINTER(Tensor),
    "handle": c_void_p, "new": POINTER(c_void_p), "address": c_void_p, "text": c_char_p, "buffer": c_char_p,
    "int32": c_int32, "int64": c_int64, "int64*": POINTER(c_int64), "int32*": POINTER(c_int32), "float": c_float,
    "double": c_double, "status": c_int32, "nothing": None,
}

# name: arguments -> result; without an arrow the result is ml_status, which is checked.
_FUNCTIONS = """
    ml_abi: -> int32
    ml_version: -> text
    ml_last_error: -> text
    ml_machine: buffer int64
    ml_set_threads: int64
    ml_threads: -> int64
    ml_release_copies: -> nothing
    ml_gmm: array weights array array
    ml_gmm_input_grad: array weights array array
    ml_gmm_weight_grad: array array array weights int32
    ml_decide_gmm: text facts int32* buffer int64
    ml_glu: glu array array array
    ml_glu_grad: glu array array array array array
    ml_rmsnorm: array array array float float array array
    ml_rmsnorm_grad: array array array array float float array array array array int32
    ml_rope: array array array int32 array
    ml_rope_grad: array array array int32 array
    ml_route: router array array array
    ml_route_grad: router array array array array
    ml_permute_plan: array int64 array array int64*
    ml_permute: array array int64 array
    ml_unpermute: array array array int64 array
    ml_unpermute_grad: array array array array array array
    ml_mpi_start:
    ml_mpi_end:
    ml_mpi_running: -> int32
    ml_abort: int32 -> nothing
    ml_group_open: address new
    ml_group_world: new
    ml_group_mesh: handle int64 new new
    ml_group_set_timeout: handle double
    ml_group_rank: handle -> int64
    ml_group_size: handle -> int64
    ml_group_experts: handle int64 int64* int64*
    ml_group_sum: handle arrays int64 double
    ml_group_barrier: handle
    ml_group_agree: handle text
    ml_group_enter: handle text text
    ml_group_gather_text: handle text
    ml_group_text: handle int64 -> text
    ml_group_release: handle
    ml_group_close: handle -> nothing
    ml_experts_open: handle settings new
    ml_experts_forward: handle expert_weights array array array array new
    ml_experts_backward: handle expert_weights handle array array array expert_grads
    ml_experts_reason: handle buffer int64
    ml_trip_rows: handle -> int64
    ml_trip_free: handle -> nothing
    ml_experts_close: handle -> nothing
    ml_dispatch_plan: handle array new
    ml_trip_counts: handle array
    ml_dispatch: handle handle array array array array
    ml_combine: handle handle array array array array array
    ml_adamw: adamw array array array array
    ml_squares: array array
    ml_folder_open: text new
    ml_folder_count: handle -> int64
    ml_folder_tensor: handle int64 tensor
    ml_folder_find: handle text tensor
    ml_folder_read: handle text int64 array
    ml_folder_close: handle -> nothing
    ml_shards_open: text tensor int64 int64 int32 new
    ml_shards_write: handle text int64 array
    ml_shards_close: handle
"""


def functions() -> List[Tuple[str, List[Any], Any, bool]]:
    """Of each function its name, its arguments' types, its result's, and whether that is a status."""
    rows = []
    for line in _FUNCTIONS.strip().splitlines():
        name, _, signature = line.strip().partition(":")
        arguments, _, result = signature.partition("->")
        result = result.strip() or "status"
        rows.append((name, [_TYPES[word] for word in arguments.split()], _TYPES[result], result == "status"))
    return rows
