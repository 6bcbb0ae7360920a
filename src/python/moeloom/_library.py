"""Finds libmoeloom_c.so, loads it once, and turns what its functions answer into exceptions."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import weakref
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence

from . import _table
from .errors import OF_STATUS, ConfigError, Error, IoError, SpentError

NAME = f"libmoeloom_c.so.{_table.ABI}"
PACKAGE = Path(__file__).resolve().parent


class Library:
    """The library's functions as attributes; one that fails raises what its status says, with the library's text."""

    def __init__(self, path: str) -> None:
        try:
            self._handle = ctypes.CDLL(path)
        except OSError as error:
            raise IoError(f"the library of moeloom cannot be loaded: {error}; MOELOOM_LIBRARY=PATH names it, "
                          "`cmake --install` and `pip install` put it beside the package") from error
        self.path = path
        self._require_abi()
        self._last_error = self._handle.ml_last_error
        for name, arguments, result, is_status in _table.functions():
            function = getattr(self._handle, name)
            function.argtypes, function.restype = arguments, result
            setattr(self, name, self._checked(function, name) if is_status else function)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"{self.path} has no function {name}")

    def _require_abi(self) -> None:
        try:
            found = self._handle.ml_abi()
        except AttributeError:
            raise ConfigError(f"{self.path} is not the library of moeloom: it has no ml_abi") from None
        if found != _table.ABI:
            raise ConfigError(f"{self.path} has ABI {found}, this package wants {_table.ABI}; install both from the "
                              "same version")

    def _checked(self, function: Any, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            try:
                status = int(function(*arguments))
            except ctypes.ArgumentError as error:  # neither a TypeError nor one of ours
                raise TypeError(_wrong_argument(name, arguments, str(error))) from None
            if status:
                raise OF_STATUS.get(status, Error)(self._last_error().decode("utf8", "replace"))
            return status
        return call


def _wrong_argument(name: str, arguments: Sequence[Any], said: str) -> str:
    place = re.match(r"argument (\d+)", said)
    if place is None:
        return f"{name}: {said}"
    value = arguments[int(place.group(1)) - 1]
    return f"argument {place.group(1)} of {name} is {value!r:.80}, a {type(value).__name__}; see moeloom/c/moeloom.h"


def above(levels: int) -> List[Path]:
    """The folder so many levels above the one that the package is in; none where a short path, /app/moeloom, ends."""
    return list(PACKAGE.parents)[levels:levels + 1]


def _beside_the_package() -> List[Path]:
    # A wheel has it in the package; `cmake --install` in the lib folder of lib/python3/dist-packages/moeloom.
    installed = [path for lib in above(2) for path in (lib / NAME, *sorted(lib.glob(f"*-linux-gnu*/{NAME}")))]
    return [PACKAGE / NAME, *installed]


def library_path() -> str:
    """Where the library is, or its name for the loader to find."""
    asked = os.environ.get("MOELOOM_LIBRARY")
    if asked:
        return asked
    return next((str(path) for path in _beside_the_package() if path.exists()), NAME)


@functools.lru_cache(maxsize=None)
def library() -> Library:
    return Library(library_path())


class Handle:
    """A group, experts or a trip of the library, given back when nobody holds it.

    Not in a process that was forked: it has a copy of the memory, but is not who opened it.
    """

    def __init__(self, what: str, value: Optional[int], close: str) -> None:
        self._what = what
        self._value: Optional[ctypes.c_void_p] = ctypes.c_void_p(value)
        self._finalizer = weakref.finalize(self, _give_back, getattr(library(), close), self._value, os.getpid())
        self._finalizer.atexit = False  # the process's end gives everything back, and MPI may have ended

    @property
    def value(self) -> ctypes.c_void_p:
        if self._value is None:
            raise SpentError(f"the {self._what} is closed")
        return self._value

    def close(self) -> None:
        self._value = None
        self._finalizer()

    def __reduce__(self) -> Any:
        raise TypeError(f"the {self._what} belongs to this process and cannot be copied or pickled")


def _give_back(close: Callable[[Any], None], value: ctypes.c_void_p, process: int) -> None:
    if os.getpid() == process:
        close(value)
