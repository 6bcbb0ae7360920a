"""Tensors of a folder of safetensors that are read when they are asked for, whole or some rows: nothing is mapped, and
what is not asked for is not read."""

from __future__ import annotations

import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

import torch

from ..errors import IoError
from ._files import Spec, dtype_of, row_size


class _File:
    """Open as long as anything refers to it; read by any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = os.open(path, os.O_RDONLY)
        try:
            (length,) = struct.unpack("<Q", os.pread(self._number, 8, 0))
            header: Dict[str, Any] = json.loads(os.pread(self._number, length, 8))
        except (struct.error, ValueError, MemoryError) as error:
            os.close(self._number)
            raise IoError(f"{path} is no safetensors file: {error}") from None
        header.pop("__metadata__", None)
        self.header, self._begin = header, 8 + length

    def __del__(self) -> None:
        if hasattr(self, "_begin"):
            os.close(self._number)

    def read(self, begin: int, target: torch.Tensor) -> None:
        """Bytes from `begin` of the data on -> target, [n] of bytes."""
        numbers: Any = target.numpy()
        memory = memoryview(numbers)
        at = self._begin + begin
        while len(memory):
            count = os.preadv(self._number, [memory[:1 << 30]], at)
            if not count:
                raise IoError(f"{self.path} is cut short: bytes from {at} on are missing")
            memory, at = memory[count:], at + count


class Arena:
    """Memory of tensors that go together, as a layer's experts that will be stacked: freed one by one they would leave
    a heap of holes. It is there from the first one that is read to the last that is held."""

    def __init__(self) -> None:
        self._left, self._bytes, self._at = 0, 0, 0
        self._memory: Optional[torch.Tensor] = None

    def expect(self, size: int) -> None:
        self._left, self._bytes = self._left + 1, self._bytes + _rounded(size)

    def take(self, size: int) -> torch.Tensor:
        """[size] of bytes; one that was not expected has memory of its own."""
        if self._memory is None:
            self._memory, self._at = _pages(max(self._bytes, size)), 0
        taken, self._at = self._memory[self._at:self._at + size], self._at + _rounded(size)
        self._left -= 1
        if self._left <= 0:
            self._memory, self._bytes = None, 0
        return taken if taken.numel() == size else torch.empty(size, dtype=torch.uint8)


def _pages(size: int) -> torch.Tensor:
    """[size] of bytes that go back to the system, and not to a heap, with the last tensor that lies there."""
    return torch.frombuffer(mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=torch.uint8)


def _rounded(size: int) -> int:
    return -size // 64 * -64


class Slice:
    """What transformers takes in a tensor's place: it is read by [...] or to(), and each time anew."""

    def __init__(self, file: _File, spec: Spec, at: int, begin: int = 0, count: Optional[int] = None) -> None:
        self._file, self._spec, self._at, self._begin = file, spec, at, begin
        self._arena: Optional[Arena] = None
        self.shape = torch.Size(spec.shape if count is None else (count, *spec.shape[1:]))
        self.dtype = dtype_of(spec)

    def rows(self, begin: int, count: int) -> Slice:
        return Slice(self._file, self._spec, self._at, begin, count)

    @property
    def _element(self) -> int:
        return int(torch.empty((), dtype=self.dtype).element_size())

    def lie_in(self, arena: Arena) -> None:
        """Where its numbers go."""
        self._arena = arena
        arena.expect(self.numel() * self._element)

    def read(self) -> torch.Tensor:
        size = self.numel() * self._element
        memory = torch.empty(size, dtype=torch.uint8) if self._arena is None else self._arena.take(size)
        self._file.read(self._at + self._begin * row_size(self._spec.shape) * self._element, memory)
        return memory.view(self.dtype).view(self.shape)

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self.read() if index is Ellipsis else self.read()[index]

    def to(self, *arguments: Any, **named: Any) -> torch.Tensor:
        return self.read().to(*arguments, **named)

    def is_floating_point(self) -> bool:
        return bool(self.dtype.is_floating_point)

    def get_dtype(self) -> str:
        return self._spec.dtype

    def get_shape(self) -> Tuple[int, ...]:
        return tuple(self.shape)

    def numel(self) -> int:
        return int(self.shape.numel())


def slices_of(folder: Path) -> Optional[Dict[str, Slice]]:
    """Of all tensors, by name; None where there are no safetensors."""
    names = _files_of(folder)
    return dict(each for name in names for each in _slices(folder / name)) if names else None


def _files_of(folder: Path) -> Tuple[str, ...]:
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return ("model.safetensors",)
    if not index.is_file():
        return ()
    try:
        return tuple(sorted(set(json.loads(index.read_text("utf8"))["weight_map"].values())))
    except (ValueError, KeyError, AttributeError) as error:
        raise IoError(f"{index} is no index of shards: {error}") from None


def _slices(path: Path) -> Iterator[Tuple[str, Slice]]:
    try:
        file = _File(path)
    except FileNotFoundError:
        raise IoError(f"{path} is missing, which the index names") from None
    for name, entry in file.header.items():
        yield name, Slice(file, Spec(name, entry["dtype"], tuple(entry["shape"])), entry["data_offsets"][0])
