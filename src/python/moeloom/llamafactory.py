"""LLaMA-Factory's kernels: after `register()` its `kernel_config` knows cpu_fused_moe, cpu_fused_swiglu, ..."""

from __future__ import annotations

from typing import Any

from .torch.kernels import apply_kernel, get_default_kernels


def _plugin(base: type, name: str) -> type:
    """A class as its own kernels are: found by id, checked by device, applied to the keyword `model`."""
    def _apply(cls: Any, /, **named: Any) -> Any:
        if named.get("model") is None:
            raise ValueError(f"cpu_{name} needs the keyword model")
        return apply_kernel(name, model=named["model"])

    return type(f"Cpu_{name}", (base,), {
        "_kernel_id": f"cpu_{name}", "apply": classmethod(_apply), "_apply": classmethod(_apply),
        "__doc__": f"moeloom's {name}, on the CPU, which is the device of a kernel that names none."})


def register() -> None:
    """Adds a KernelPlugin for each of our kernels. LLaMA-Factory 1.0 or later."""
    from llamafactory.v1.plugins.model_plugins.kernels import base  # type: ignore[import-not-found]

    for name in get_default_kernels():
        base.KernelPlugin(f"cpu_{name}").register()(_plugin(base.BaseKernel, name))
