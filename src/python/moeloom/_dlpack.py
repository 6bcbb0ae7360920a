"""Looks into a DLPack capsule without taking what it holds (dmlc/dlpack, dlpack.h, version 0)."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional, Tuple


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Seen(NamedTuple):
    data: Optional[int]
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]
    dtype: str


_CPU = 1
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def _contiguous(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    stride, step = [], 1
    for length in reversed(shape):
        stride.append(step)
        step *= length
    return tuple(reversed(stride))


def look(value: Any, name: str) -> Seen:
    """The capsule goes back unused, and with it what it held: `value` itself keeps the numbers."""
    device = value.__dlpack_device__()[0]
    if device != _CPU:
        raise TypeError(f"{name} is on DLPack's device {int(device)}; expected {_CPU}, the CPU")
    capsule = value.__dlpack__()
    tensor = ctypes.cast(_pointer_of(capsule, b"dltensor"), ctypes.POINTER(_Tensor)).contents
    shape = tuple(tensor.shape[:tensor.ndim])
    stride = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else _contiguous(shape)
    dtype = f"{_KINDS.get(tensor.code, 'kind')}{tensor.bits}" + (f"x{tensor.lanes}" if tensor.lanes != 1 else "")
    data = (tensor.data or 0) + tensor.byte_offset
    return Seen(data or None, shape, stride, dtype)
