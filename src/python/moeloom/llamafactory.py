"""LLaMA-Factory's kernels: after `register()` its `kernel_config` knows cpu_fused_moe, cpu_fused_swiglu, ..."""

from __future__ import annotations

import importlib
from typing import Any

from .torch.kernels import apply_kernel, get_default_kernels

_KERNELS = "llamafactory.v1.plugins.model_plugins.kernels"


class CpuKernel:
    """One of ours, for LLaMA-Factory, which calls its kernels or their `apply`, by version, with the keyword model."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, **named: Any) -> Any:
        if named.get("model") is None:
            raise ValueError(f"cpu_{self.name} needs the keyword model")
        return apply_kernel(self.name, model=named["model"])

    __call__ = apply


def register() -> None:
    """Adds a KernelPlugin for each of our kernels."""
    files = (importlib.import_module(f"{_KERNELS}.{name}") for name in ("base", "interface"))
    plugin = next(file.KernelPlugin for file in files if hasattr(file, "KernelPlugin"))
    for name in get_default_kernels():
        plugin(f"cpu_{name}").register()(CpuKernel(name))
