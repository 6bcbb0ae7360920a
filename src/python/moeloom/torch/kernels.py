"""Kernels on a model of Hugging Face, by name: what fits is put in place, what does not is left alone and reported.

    apply_kernel("fused_moe", model=model)
    apply_default_kernels(model)             # all that fit
    for report in reports(model): print(report)
    unapply(model)
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Union

from torch import nn

from ..errors import ConfigError
from ._kernels import PatchingKernel, cannot_run, forget, report, reported
from ._patch import Report, patches
from ._registry import (ALL, NONE, BaseKernel, get_default_kernels, known, make, register_kernel,
                        scan_all_kernels)
from ._shares import mesh_of, shares

__all__ = ["BaseKernel", "Report", "apply_default_kernels", "apply_kernel", "apply_kernels", "get_default_kernels",
           "register_kernel", "reports", "scan_all_kernels", "unapply"]


def _why_not(kernel: Any, model: nn.Module, mesh: Any) -> Optional[str]:
    reason: Optional[str] = (kernel.look(model, mesh)[1] if isinstance(kernel, PatchingKernel) else
                             kernel.check(model))
    return reason


def _apply_all(model: nn.Module, named: List[str], auto: bool, mesh: Any, grads: str = "kept") -> nn.Module:
    """All that were named are checked before the first is applied."""
    made = {id: make(id, grads) for id in sorted({*named, *(get_default_kernels() if auto else ())})}
    reasons: Dict[str, str] = {id: _why_not(kernel, model, mesh) or "" for id, kernel in made.items()}
    cannot = [cannot_run(id, reasons[id]) for id in sorted(set(named)) if reasons[id]]
    if cannot:
        raise ConfigError("\n".join(cannot))
    for id, kernel in made.items():
        if reasons[id]:
            report(model, id, kernel.not_applied(model, kernel.look(model, mesh)[0], reasons[id])
                   if isinstance(kernel, PatchingKernel) else [Report(id, "", False, reasons[id])])
            continue
        model = kernel.apply(model, mesh)
        if not isinstance(kernel, PatchingKernel):
            report(model, id, [Report(id, "", True, "its check found no reason against it")])
    return model


def apply_kernel(id: str, *, model: nn.Module, mesh: Any = None, grads: str = "kept") -> nn.Module:  # noqa: A002
    """The one. grads: of expert weights, "kept" in memory of the layer, or "autograd"'s tensors, for hooks and DDP."""
    return _apply_all(model, [known(id)], False, mesh, grads)


def apply_kernels(model: nn.Module, kernels: Union[str, Mapping[str, Any], None], mesh: Any = None) -> nn.Module:
    """Those of "a,b", of which a word may be auto: all that fit; or of {"name": "auto, a"}."""
    request = kernels.get("name") if isinstance(kernels, Mapping) else kernels
    words = [word.strip() for word in str(request if request is not None else "").split(",")]
    auto = any(word.lower() in ALL for word in words)
    names = [known(word) for word in words if word.lower() not in (*ALL, *NONE)]
    return _apply_all(model, names, auto, mesh)


def apply_default_kernels(model: nn.Module, include_kernels: Union[str, bool, None] = "auto",
                          mesh: Any = None) -> nn.Module:
    """include_kernels: "auto" or True, all that fit; None or False, none; "a,b", those."""
    return apply_kernels(model, None if include_kernels is None else str(include_kernels), mesh)


def unapply(model: nn.Module) -> nn.Module:
    """Every module has again the very functions that it had. ConfigError where ranks share its experts."""
    mesh = mesh_of(model)
    if mesh is not None and mesh.ep > 1:
        raise ConfigError(f"this rank has its share of the experts alone ({mesh!r}); save_pretrained(model, folder) "
                          "writes the whole model, which can be loaded without patches")
    for _, patch in list(patches(model)):
        patch.remove()
    forget(model)
    return model


def reports(model: nn.Module) -> List[Report]:
    """What the kernels that were asked for did, and did not, module by module.

    Of experts that ranks share also how their rows travel, and why; it is decided in the first forward.
    """
    travels: Dict[str, str] = {}
    for name, _, share in shares(model):
        travels[name] = share.mesh.ep_row.travels(share.num_experts, share.layer) or "no row has travelled yet"
    found = [each._replace(reason=f"{each.reason}; {travels.pop(name)}") if each.applied and name else each
             for each in reported(model) for name in [_within(travels, each)]]
    return found + [Report("experts_implementation", name, True, why) for name, why in travels.items()]


def _within(travels: Mapping[str, str], report_: Report) -> str:
    """Of the modules whose rows travel that which a report on fused_moe is about; "" where there is none."""
    if report_.kernel != "fused_moe":
        return ""
    inside = f"{report_.module}." if report_.module else ""
    return next((name for name in travels if name == report_.module or name.startswith(inside)), "")
