"""Kernels by id: where register_kernel() puts them, and under which other names they are found."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional

from torch import nn

from ..errors import ConfigError

# Words of requests, which no kernel can be called.
ALL, NONE = ("auto", "true", "1"), ("none", "false", "0", "")
_kernels: Dict[str, type] = {}
_aliases: Dict[str, str] = {}


class BaseKernel:
    """One kernel: whether it can do anything for a model, and doing it. grads: of expert weights, kept or autograd."""

    id = ""
    grads = "kept"

    def check(self, model: nn.Module) -> Optional[str]:
        """Why it cannot run, or None."""
        raise NotImplementedError

    def apply(self, model: nn.Module, mesh: Any = None) -> nn.Module:
        raise NotImplementedError


def register_kernel(id: str, aliases: Iterable[str] = ()) -> Callable[[type], type]:  # noqa: A002
    """Decorator of a class with check(model) -> reason or None and apply(model, mesh=None) -> model."""
    def register(kernel: type) -> type:
        for name in (id, *aliases):
            if name.lower() in (*ALL, *NONE) or "," in name:
                raise ConfigError(f'kernel name "{name}" is a word of requests; choose another')
            owner = _aliases.get(name)
            if owner is not None and _kernels[owner] is not kernel:
                raise ConfigError(f'kernel name "{name}" is taken by {owner}; choose another')
        _kernels[id] = kernel
        _aliases.update({name: id for name in (id, *aliases)})
        kernel.id = id  # type: ignore[attr-defined]
        return kernel
    return register


def scan_all_kernels() -> Dict[str, type]:
    """Kernels by id, those of register_kernel() too."""
    return dict(sorted(_kernels.items()))


def get_default_kernels() -> List[str]:
    """Ids that "auto" stands for."""
    return list(scan_all_kernels())


def known(name: str) -> str:
    if name.strip() not in _aliases:
        raise ConfigError(f'unknown kernel "{name.strip()}"; known: {", ".join(scan_all_kernels())}')
    return _aliases[name.strip()]


def make(id: str, grads: str = "kept") -> Any:  # noqa: A002
    if grads not in ("kept", "autograd"):
        raise ConfigError(f'unknown grads "{grads}"; known: kept, autograd')
    kernel = _kernels[id]()
    kernel.grads = grads
    return kernel
