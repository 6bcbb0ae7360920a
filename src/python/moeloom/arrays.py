"""Somebody's numbers as the library takes them: torch, NumPy, or whatever speaks DLPack; never a copy.

What cannot be borrowed is refused: another device, dtype or layout is a TypeError, a last stride other than 1 a
ShapeError. The array holds the value that its numbers are of.
"""

from __future__ import annotations

import struct
from typing import Any, Dict, Optional, Sequence, Tuple

from . import _dlpack
from ._table import BF16, F16, F32, F64, I32, I64, MAX_DIMS, U8, Array
from .errors import ShapeError

# By name, which is the same in torch and NumPy; bfloat16 of ml_dtypes too.
_DTYPES = {"float32": F32, "bfloat16": BF16, "float16": F16, "int64": I64, "int32": I32, "uint8": U8, "float64": F64}
_OF_TORCH: Dict[Any, int] = {}  # by dtype and layout; filled as tensors come, for torch is not imported here

# The bytes of an Array by its number of dimensions: half the time of its constructor, which a step calls 1000 times.
_PACK = [struct.Struct(f"=Q{dims}q{8 * (MAX_DIMS - dims)}x{dims}q{8 * (MAX_DIMS - dims)}xii").pack
         for dims in range(MAX_DIMS + 1)]


def _dtype_number(dtype: Any, name: str) -> int:
    word = str(dtype).replace("torch.", "")
    if word not in _DTYPES:
        raise TypeError(f"{name} has dtype {word}; expected one of {', '.join(_DTYPES)}")
    return _DTYPES[word]


def _array(owner: Any, data: Optional[int], shape: Tuple[int, ...], stride: Tuple[int, ...], dtype: int,
           name: str) -> Array:
    """The struct. Where there is one element or none along a dimension its stride has no meaning, and becomes 1."""
    dims = len(shape)
    if not 1 <= dims <= MAX_DIMS:
        raise ShapeError(f"{name} has {dims} dimensions, shape {list(shape)}; expected 1 to {MAX_DIMS}")
    if stride[-1] != 1:
        if shape[-1] > 1 and 0 not in shape:
            raise ShapeError(f"{name} has stride {stride[-1]} along its last dimension; expected 1: make it contiguous")
        stride = (*stride[:-1], 1)
    if min(stride) < 0:
        raise ShapeError(f"{name} has strides {list(stride)}; expected none below 0: make it contiguous")
    array = Array(data, shape, stride, dims, dtype)
    array.owner = owner
    return array


def _dtype_of_tensor(tensor: Any, name: str) -> int:
    dtype = _dtype_number(tensor.dtype, name)
    if str(tensor.layout) != "torch.strided":
        raise TypeError(f"{name} has layout {tensor.layout}; expected torch.strided, as {name}.to_dense() has")
    _OF_TORCH[tensor.dtype, tensor.layout] = dtype
    return dtype


def of_tensor(tensor: Any, name: str) -> Array:
    """Of a torch.Tensor on this processor."""
    dtype = _OF_TORCH.get((tensor.dtype, tensor.layout))
    if dtype is None:
        dtype = _dtype_of_tensor(tensor, name)
    if not tensor.is_cpu:
        raise TypeError(f"{name} is on {tensor.device}; expected a tensor of the CPU, as {name}.cpu() is")
    shape, stride = tensor.shape, tensor.stride()
    dims = len(shape)
    if not 1 <= dims <= MAX_DIMS or stride[-1] != 1:
        return _array(tensor, tensor.data_ptr(), tuple(shape), stride, dtype, name)
    array = Array.from_buffer_copy(_PACK[dims](tensor.data_ptr(), *shape, *stride, dims, dtype))
    array.owner = tensor
    return array


def of_ndarray(array: Any, name: str) -> Array:
    """Of a numpy.ndarray, of which strides are bytes."""
    dtype = _dtype_number(array.dtype, name)
    size = array.itemsize
    shape = array.shape
    stride = tuple(step // size if length > 1 else 1 for step, length in zip(array.strides, shape))
    if any(step % size for step, length in zip(array.strides, shape) if length > 1):
        raise ShapeError(f"{name} has strides of {list(array.strides)} bytes; expected multiples of its {size}: make "
                         "it contiguous")
    return _array(array, array.ctypes.data, shape, stride, dtype, name)


def borrow(value: Any, name: str = "array") -> Array:
    """Any of the three, told by what it offers."""
    if isinstance(value, Array):
        return value
    if hasattr(value, "data_ptr"):
        return of_tensor(value, name)
    if hasattr(value, "ctypes"):
        return of_ndarray(value, name)
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(value, name)
    raise TypeError(f"{name} is a {type(value).__name__}; expected a torch.Tensor, a numpy.ndarray, or an array with "
                    "__dlpack__")


def _of_dlpack(value: Any, name: str) -> Array:
    seen = _dlpack.look(value, name)
    return _array(value, seen.data, seen.shape, seen.stride, _dtype_number(seen.dtype, name), name)


def require_dims(array: Any, letters: Sequence[str], name: str) -> None:
    """A ShapeError unless `array` has as many dimensions as there are letters."""
    if len(array.shape) != len(letters):
        raise ShapeError(f"{name} must be [{', '.join(letters)}]; found shape {list(array.shape)}")
