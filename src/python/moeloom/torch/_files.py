"""Tensors in folders of safetensors, written by all ranks together and read each its own; and steps of which an error
on one rank is an error on all."""

from __future__ import annotations

import builtins
import os
import sys
from ctypes import byref, c_void_p
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, TypeVar

import torch

from .._endings import told_to_all
from .._library import library
from .._table import Tensor
from .. import errors
from ..errors import ConfigError, ShapeError
from ._tensors import plain, view

T = TypeVar("T")
_NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "float64": "F64", "int64": "I64", "int32": "I32",
          "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3",
          "float8_e5m2": "F8_E5M2"}
_WORDS = {name: word for word, name in _NAMES.items()}


class Spec(NamedTuple):
    """A tensor as a file has it; dtype as safetensors spells it."""

    name: str
    dtype: str
    shape: Tuple[int, ...]


def spec_of(name: str, tensor: torch.Tensor, shape: Optional[Iterable[int]] = None) -> Spec:
    """shape: of the whole one, of which the tensor is some rows."""
    word = str(tensor.dtype).replace("torch.", "")
    if word not in _NAMES:
        raise ConfigError(f"{name} is of dtype {word}, which a file cannot have; expected one of {', '.join(_NAMES)}")
    return Spec(name, _NAMES[word], tuple(tensor.shape if shape is None else shape))


def dtype_of(spec: Spec) -> torch.dtype:
    found = getattr(torch, _WORDS.get(spec.dtype, spec.dtype), None)
    if not isinstance(found, torch.dtype):
        raise ConfigError(f"{spec.name} has dtype {spec.dtype}, which this torch does not know")
    return found


def row_size(shape: Iterable[int]) -> int:
    """Elements of a row: of all dimensions but the first."""
    size = 1
    for length in tuple(shape)[1:]:
        size *= length
    return size


def _bytes_of(tensor: torch.Tensor, name: str) -> Any:
    """Of one without gaps, as the library takes bytes of any dtype."""
    return view(tensor.reshape(-1).view(torch.uint8), name)


def _caller() -> str:
    """save_checkpoint, or who else calls together()."""
    return sys._getframe(2).f_code.co_name


def together(mesh: Any, action: Callable[[], T], what: str = "") -> T:
    """What `action` returns here; where it fails on a rank of the mesh every rank raises an error of that kind.

    Collective; what: by which others see this rank waiting here; "": the caller's name.
    """
    result: Any = None
    failed: Optional[Exception] = None
    try:
        result = action()
    except Exception as error:  # pylint: disable=broad-except
        failed = error
    if mesh is not None and mesh.size > 1:
        try:
            mesh.world.agree("" if failed is None else f"{_kind_of(failed)}: {failed}", what or _caller())
        except Exception as error:
            if failed is None:
                failed = _of_its_kind(error)
            told_to_all(failed, mesh.rank, mesh.rank)
    if failed is not None:
        raise failed
    done: T = result
    return done


def _kind_of(error: Exception) -> str:
    """Its class, or of what that is derived, as other ranks know it."""
    names: List[str] = [kind.__name__ for kind in type(error).__mro__ if _class_of(kind.__name__) is kind]
    return names[0]


def _class_of(name: str) -> Any:
    return getattr(errors, name, None) or getattr(builtins, name, None)


def _of_its_kind(error: Exception) -> Exception:
    """What another rank told, as an error of the class that it had there."""
    for word in str(error).split(": "):
        kind = _class_of(word.rpartition(" ")[2])
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError):
            return error if isinstance(error, kind) else kind(str(error))
    return error


def require_one_folder(folder: Path, mesh: Any) -> None:
    """ConfigError on every rank where they name other folders than each other. Collective."""
    told = [str(folder)] if mesh is None or mesh.size == 1 else mesh.world.gather(str(folder))
    if len(set(told)) > 1:
        named = ", ".join(f"rank {rank} {name}" for rank, name in enumerate(told))
        raise ConfigError(f"ranks name different folders: {named}; every rank names the same")


def first_then_others(mesh: Any, action: Callable[[], T], what: str) -> T:
    """Rank 0 has done it before the others begin. Collective."""
    if is_first(mesh):
        done = together(mesh, action, what)
        together(mesh, lambda: None, what)
        return done
    together(mesh, lambda: None, what)
    return together(mesh, action, what)


def is_first(mesh: Any) -> bool:
    return mesh is None or mesh.rank == 0


def write_folder(folder: Path, specs: List[Spec], mesh: Any, write: Callable[[Shards], None]) -> None:
    """Every rank names the same tensors in the same order, and writes its own. Collective."""
    shards = first_then_others(mesh, lambda: Shards(folder, specs, create=is_first(mesh)), "the making of files")

    def fill() -> None:
        try:
            write(shards)
        finally:
            shards.close()
    together(mesh, fill)


class Shards:
    """model.safetensors, or several and their index, being written."""

    def __init__(self, folder: Path, specs: List[Spec], create: bool) -> None:
        self.specs: Dict[str, Spec] = {spec.name: spec for spec in specs}
        value = c_void_p()
        library().ml_shards_open(os.fsencode(folder), _tensors(specs), len(specs), 0, create, byref(value))
        self._value: Optional[c_void_p] = value

    def write(self, name: str, tensor: torch.Tensor, begin: int = 0) -> None:
        """All of it, or rows from `begin` on."""
        if tensor.numel():
            first = begin * row_size(self.specs[name].shape)
            library().ml_shards_write(self._value, name.encode(), first,
                                      _bytes_of(plain(tensor.detach()).contiguous(), name))

    def close(self) -> None:
        """To the disk itself."""
        value, self._value = self._value, None
        library().ml_shards_close(value)


def _tensors(specs: List[Spec]) -> Any:
    found = (Tensor * max(len(specs), 1))()
    for entry, spec in zip(found, specs):
        entry.name, entry.dtype, entry.ndim = spec.name.encode(), spec.dtype.encode(), len(spec.shape)
        entry.shape[:len(spec.shape)] = spec.shape
    return found


class Folder:
    """Tensors that are there; a context manager."""

    def __init__(self, folder: Path) -> None:
        value = c_void_p()
        library().ml_folder_open(os.fsencode(folder), byref(value))
        self._value: Optional[c_void_p] = value
        self.specs: Mapping[str, Spec] = {spec.name: spec for spec in map(self._spec, range(self._count()))}

    def _count(self) -> int:
        return int(library().ml_folder_count(self._value))

    def _spec(self, number: int) -> Spec:
        entry = Tensor()
        library().ml_folder_tensor(self._value, number, byref(entry))
        return Spec(entry.name.decode(), entry.dtype.decode(), tuple(entry.shape[:entry.ndim]))

    def read(self, name: str, target: torch.Tensor, begin: int = 0) -> None:
        """Into a tensor of the file's dtype: all of it, or the rows from `begin` on that it has room for."""
        spec = self.specs[name]
        if dtype_of(spec) != target.dtype:
            raise ShapeError(f"{name} is {spec.dtype}, and is read into {target.dtype}")
        if not target.numel():
            return
        to = target.detach()
        into = to if to.is_contiguous() and not to.is_neg() else torch.empty(to.shape, dtype=to.dtype)
        library().ml_folder_read(self._value, name.encode(), begin * row_size(spec.shape), _bytes_of(into, name))
        if into is not to:
            to.copy_(into)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: Any) -> None:
        value, self._value = self._value, None
        library().ml_folder_close(value)


def sync(path: Path) -> None:
    """A file, or the names in a folder, to the disk itself."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def unwrapped(model: Any) -> Any:
    """The model inside of DistributedDataParallel, whose names are the model's."""
    while type(model).__name__ == "DistributedDataParallel":
        model = model.module
    return model
