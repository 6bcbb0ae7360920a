"""Kernels on a model of Hugging Face, by name: what fits is put in place, what does not is left alone and reported.

    apply_kernel("fused_moe", model=model)
    apply_default_kernels(model)             # all that fit
    for report in reports(model): print(report)
    unapply(model)
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from torch import nn

from ..errors import ConfigError
from ._flags import Decision, decide_gmm, flags
from ._patch import Patch, Report, patches
from ._plans import Plan, plan_experts, plan_mlps, plan_norms, plan_ropes
from .patches import Family, family_of

__all__ = ["BaseKernel", "Report", "apply_default_kernels", "apply_kernel", "apply_kernels", "get_default_kernels",
           "register_kernel", "reports", "scan_all_kernels", "unapply"]

_ALL, _NONE = ("auto", "true", "1"), ("none", "false", "0", "")
_REPORTS = "_moeloom_reports"
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
            if name.lower() in (*_ALL, *_NONE) or "," in name:
                raise ConfigError(f'kernel name "{name}" is a word of requests; choose another')
            owner = _aliases.get(name)
            if owner is not None and _kernels[owner] is not kernel:
                raise ConfigError(f'kernel name "{name}" is taken by {owner}; choose another')
        _kernels[id] = kernel
        _aliases.update({name: id for name in (id, *aliases)})
        kernel.id = id  # type: ignore[attr-defined]
        return kernel
    return register


class _Patching(BaseKernel):
    """A kernel that puts patches in the place of modules' methods. nothing: what a model says that has none of them."""

    nothing = "this model has none of the modules that it knows"

    def plan(self, model: nn.Module, family: Family, named: str, mesh: Any) -> Plan:
        raise NotImplementedError

    def switched_off(self) -> Optional[str]:
        given = flags()
        if not given.patch:
            return f"{given.said('PATCH')} switches every kernel off"
        return None if given.fused_ops else f"{given.said('FUSED_OPS')} switches fused ops off"

    def look(self, model: nn.Module, mesh: Any = None) -> Tuple[Plan, Optional[str]]:
        """What it would do, and why it would do nothing."""
        empty = Plan([], [])
        off = self.switched_off()
        if off:
            return empty, off
        family, named = family_of(model)
        if family is None:
            return empty, named
        plan = self.plan(model, family, named, mesh)
        if plan.patches:
            return plan, None
        name, why = plan.left[0] if plan.left else ("", self.nothing)
        more = f" (and {len(plan.left) - 1} more)" if len(plan.left) > 1 else ""
        return plan, f"{name}: {why}{more}" if name else why

    def check(self, model: nn.Module) -> Optional[str]:
        return self.look(model)[1]

    def apply(self, model: nn.Module, mesh: Any = None) -> nn.Module:
        plan, why_not = self.look(model, mesh)
        if why_not:
            raise ConfigError(_cannot_run(self.id, why_not))
        for _, patch in plan.patches:
            patch.install()
        done = [Report(self.id, _place(name), True, self.why(patch)) for name, patch in plan.patches]
        _report(model, self.id, done + self.left(plan))
        return model

    def left(self, plan: Plan) -> List[Report]:
        return [Report(self.id, _place(name), False, why) for name, why in plan.left]

    def why(self, patch: Patch) -> str:
        return patch.reason


@register_kernel("fused_moe", aliases=["npu_fused_moe"])
class FusedMoe(_Patching):
    """The experts of a layer in one call forward and one backward."""

    nothing = "this model has no experts"

    def switched_off(self) -> Optional[str]:
        given = flags()
        return None if given.patch else f"{given.said('PATCH')} switches every kernel off"

    def plan(self, model: nn.Module, family: Family, named: str, mesh: Any) -> Plan:
        return plan_experts(model, family, named, mesh, self.grads)

    def look(self, model: nn.Module, mesh: Any = None) -> Tuple[Plan, Optional[str]]:
        if mesh is not None and mesh.ep > 1:
            return Plan([], []), (f"ep = {mesh.ep}, and this kernel is of one process so far, ep = 1; moeloom.train shares "
                                  "experts among ranks")
        plan, why_not = super().look(model, mesh)
        if why_not:
            return plan, why_not
        self._decision = _decision(plan.patches[0][1], mesh)
        return plan, None if self._decision.applies else self._decision.reason

    def why(self, patch: Patch) -> str:
        return f"{patch.reason}; {self._decision.reason}"


def _decision(patch: Patch, mesh: Any) -> Decision:
    """On grouped products in this layer, and so in all: what the environment asks for, and the library's rule."""
    experts, hidden, intermediate = patch.sizes()
    return decide_gmm(flags().gmm or "auto", experts, hidden, intermediate, 0 if mesh is None else mesh.ep)


@register_kernel("fused_rmsnorm", aliases=["npu_fused_rmsnorm"])
class FusedRmsNorm(_Patching):
    """RMSNorm, standard, of 1 + weight, or gated."""

    def plan(self, model: nn.Module, family: Family, named: str, mesh: Any) -> Plan:
        return plan_norms(model, family, named)


@register_kernel("fused_rope", aliases=["npu_fused_rope"])
class FusedRope(_Patching):
    """Rotary embedding of q and k."""

    def plan(self, model: nn.Module, family: Family, named: str, mesh: Any) -> Plan:
        return plan_ropes(model, family, named)


@register_kernel("fused_swiglu", aliases=["npu_fused_swiglu"])
class FusedSwiglu(_Patching):
    """act(gate) * up of MLPs, act being what the model says."""

    def plan(self, model: nn.Module, family: Family, named: str, mesh: Any) -> Plan:
        return plan_mlps(model, family, named)


def scan_all_kernels() -> Dict[str, type]:
    """Kernels by id, those of register_kernel() too."""
    return dict(sorted(_kernels.items()))


def get_default_kernels() -> List[str]:
    """Ids that "auto" stands for."""
    return list(scan_all_kernels())


def _known(name: str) -> str:
    if name.strip() not in _aliases:
        raise ConfigError(f'unknown kernel "{name.strip()}"; known: {", ".join(scan_all_kernels())}')
    return _aliases[name.strip()]


def _cannot_run(id: str, reason: str) -> str:  # noqa: A002
    return f"kernel {id} was asked for by name and cannot run here: {reason}"


def _make(id: str, grads: str = "kept") -> Any:  # noqa: A002
    if grads not in ("kept", "autograd"):
        raise ConfigError(f'unknown grads "{grads}"; known: kept, autograd')
    kernel = _kernels[id]()
    kernel.grads = grads
    return kernel


def _report(model: nn.Module, id: str, found: List[Report]) -> None:  # noqa: A002
    """In place of what this kernel reported before."""
    others = [report for report in model.__dict__.get(_REPORTS, []) if report.kernel != id]
    model.__dict__[_REPORTS] = sorted([*others, *dict.fromkeys(found)], key=lambda report: report.kernel)


def _place(name: str) -> str:
    """The experts of a list are alike: one line for all of them."""
    before, _, number = name.rpartition(".")
    return before if number.isdigit() and before.endswith("experts") else name


def _apply_all(model: nn.Module, named: List[str], auto: bool, mesh: Any, grads: str = "kept") -> nn.Module:
    """All that were named are checked before the first is applied."""
    made = {id: _make(id, grads) for id in sorted({*named, *(get_default_kernels() if auto else ())})}
    reasons = {id: kernel.look(model, mesh)[1] if isinstance(kernel, _Patching) else kernel.check(model)
               for id, kernel in made.items()}
    cannot = [_cannot_run(id, reasons[id]) for id in sorted(set(named)) if reasons[id]]
    if cannot:
        raise ConfigError("\n".join(cannot))
    for id, kernel in made.items():
        if reasons[id]:
            left = kernel.left(kernel.look(model, mesh)[0]) if isinstance(kernel, _Patching) else []
            _report(model, id, left or [Report(id, "", False, reasons[id])])
            continue
        before = model.__dict__.get(_REPORTS)
        model = kernel.apply(model, mesh)
        if model.__dict__.get(_REPORTS) is before:  # a kernel that was registered from outside
            _report(model, id, [Report(id, "", True, "its check found no reason against it")])
    return model


def apply_kernel(id: str, *, model: nn.Module, mesh: Any = None, grads: str = "kept") -> nn.Module:  # noqa: A002
    """The one. grads: of expert weights, "kept" in memory of the layer, or "autograd"'s tensors, for hooks and DDP."""
    return _apply_all(model, [_known(id)], False, mesh, grads)


def apply_kernels(model: nn.Module, kernels: Union[str, Mapping[str, Any], None], mesh: Any = None) -> nn.Module:
    """Those of "a,b", of which a word may be auto: all that fit; or of {"name": "auto, a"}."""
    request = kernels.get("name") if isinstance(kernels, Mapping) else kernels
    words = [word.strip() for word in str(request if request is not None else "").split(",")]
    auto = any(word.lower() in _ALL for word in words)
    names = [_known(word) for word in words if word.lower() not in (*_ALL, *_NONE)]
    return _apply_all(model, names, auto, mesh)


def apply_default_kernels(model: nn.Module, include_kernels: Union[str, bool, None] = "auto",
                          mesh: Any = None) -> nn.Module:
    """include_kernels: "auto" or True, all that fit; None or False, none; "a,b", those."""
    return apply_kernels(model, None if include_kernels is None else str(include_kernels), mesh)


def unapply(model: nn.Module) -> nn.Module:
    """Every module has again the very functions that it had."""
    for _, patch in list(patches(model)):
        patch.remove()
    model.__dict__.pop(_REPORTS, None)
    return model


def reports(model: nn.Module) -> List[Report]:
    """What the kernels that were asked for did, and did not, module by module."""
    return list(getattr(model, _REPORTS, []))
