"""The patch of attention that turns q and k by ours; rope is a function of the file that attention is in."""

from __future__ import annotations

import inspect
import threading
import weakref
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Set

import torch
from torch import nn

from ._patch import Patch, is_ours
from .functions import RopeFunction


class _Turn(NamedTuple):
    """What of ours computes a file's function, where it is called with so many arguments by place and these by name;
    None where it does not."""

    function: Callable[..., Any]
    arguments: int = 4
    named: Mapping[str, Any] = {}


class _Switch:
    """Stands in the file's place of the function; turns by ours inside of patched attention, else by the file's."""

    def __init__(self, globals_: Dict[str, Any], name: str, pairs: str) -> None:
        self._globals, self._name, self._turn = globals_, name, _TURNS[pairs]
        self.original = globals_[name]
        # transformers 4 has position_ids there and does not read them; where it does, the plan has left it alone.
        self._read = 4 if list(inspect.signature(self.original).parameters)[4:5] == ["position_ids"] else None
        self.__name__, self.__doc__ = name, self.original.__doc__
        self._users: Set[weakref.ref[Rope]] = set()
        self._inside = threading.local()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        turn, read = self._turn, arguments[:self._read]
        if getattr(self._inside, "depth", 0) and len(read) == turn.arguments and named == turn.named:
            turned = turn.function(*read)
            if turned is not None:
                return turned
        return self.original(*arguments, **named)

    def enter(self) -> None:
        self._inside.depth = getattr(self._inside, "depth", 0) + 1

    def leave(self) -> None:
        self._inside.depth -= 1

    def add(self, user: Rope) -> None:
        self._users.add(weakref.ref(user, self._discard))

    def discard(self, user: Rope) -> None:
        self._discard(weakref.ref(user))

    def _discard(self, user: weakref.ref[Rope]) -> None:
        """The file has its own function again where nobody uses this one."""
        self._users.discard(user)
        if not self._users and self._globals.get(self._name) is self:
            self._globals[self._name] = self.original


def attention_globals(module: nn.Module) -> Dict[str, Any]:
    """Of the file that the class's forward was written in."""
    function: Any = inspect.unwrap(type(module).forward)
    return function.__globals__


class Rope(Patch):
    """Attention as it is, but for the function that turns q and k. functions: its names, and which pairs turn."""

    kernel = "fused_rope"

    def __init__(self, module: nn.Module, functions: Mapping[str, str]) -> None:
        super().__init__(module)
        self._functions = dict(functions)
        self.settings = (tuple(self._functions.items()),)
        self.reason = f"{', '.join(self._functions)} of its file, while this attention runs"

    def _switches(self, makes: bool) -> List[_Switch]:
        globals_ = attention_globals(self.module)
        for name, pairs in self._functions.items():
            if makes and name in globals_ and not isinstance(globals_[name], _Switch):
                globals_[name] = _Switch(globals_, name, pairs)
        found = [globals_.get(name) for name in self._functions]
        return [function for function in found if isinstance(function, _Switch)]

    def install(self) -> None:
        super().install()
        standing = self.module.__dict__[self.attribute]
        for switch in self._switches(makes=True):
            switch.add(standing)

    def remove(self) -> None:
        super().remove()
        for switch in self._switches(makes=False):
            switch.discard(self)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        switches = self._switches(makes=True)
        for switch in switches:
            switch.add(self)  # a copy, or one from a pickle, was never installed
            switch.enter()
        try:
            return self.original(*arguments, **named)
        finally:
            for switch in switches:
                switch.leave()


def _fits(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor) -> bool:
    return is_ours(q) and is_ours(k) and q.dim() == k.dim() == 4 and cos.dim() == 3 and not cos.requires_grad


def _turn(q: torch.Tensor, k: torch.Tensor, cos: Any, sin: Any, interleaved: Any) -> Any:
    return RopeFunction.apply(q, k, cos, sin, interleaved) if _fits(q, k, cos) else None


def _turn_by_half_angles(q: torch.Tensor, k: torch.Tensor, cos: Any, sin: Any) -> Any:
    """gpt-oss: each angle once."""
    return _turn(q, k, torch.cat([cos, cos], -1), torch.cat([sin, sin], -1), False)


def _turn_by_complex(q: torch.Tensor, k: torch.Tensor, angles: torch.Tensor) -> Any:
    """DeepSeek-V2: angles [B, S, d/2], cos + i sin."""
    cos, sin = torch.cat([angles.real] * 2, -1), torch.cat([angles.imag] * 2, -1)
    return _turn(q, k, cos, sin, True)


def _turn_heads_by_complex(q: torch.Tensor, k: torch.Tensor, angles: torch.Tensor) -> Any:
    """Llama 4: q and k [B, S, H, d]."""
    turned = _turn_by_complex(q.transpose(1, 2), k.transpose(1, 2), angles)
    return None if turned is None else tuple(x.transpose(1, 2) for x in turned)


def _turn_one_by_token(x: torch.Tensor, cos: Any, sin: Any) -> Any:
    """Gemma 4: q or k, [B, S, H, d]."""
    heads = x.transpose(1, 2)
    turned = _turn(heads, heads.detach()[:, :0], cos, sin, False)
    return None if turned is None else turned[0].transpose(1, 2)


_TURNS: Dict[str, _Turn] = {
    "halves": _Turn(lambda q, k, cos, sin: _turn(q, k, cos, sin, False)),
    "interleaved": _Turn(lambda q, k, cos, sin: _turn(q, k, cos, sin, True)),
    "to_halves": _Turn(lambda q, k, cos, sin: _turn(q, k, cos, sin, "to_halves")),
    "half_angles": _Turn(_turn_by_half_angles),
    "one_by_token": _Turn(_turn_one_by_token, arguments=3, named={"unsqueeze_dim": 2}),
    "complex": _Turn(_turn_by_complex, arguments=3),
    "complex_heads": _Turn(_turn_heads_by_complex, arguments=3),
}
