"""The kernels that are here: each puts patches in the place of modules' methods, by the plans of `_plans.py`."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from torch import nn

from ..errors import ConfigError
from ._flags import Decision, decide_gmm, flags
from ._patch import Patch, Report, patches
from ._plans import Plan, plan_experts, plan_mlps, plan_norms, plan_ropes
from ._registry import BaseKernel, register_kernel
from ._guards import guard, refuse_adapters
from ._shares import mesh_for
from .patches import Family, family_of

_REPORTS = "_moeloom_reports"


def cannot_run(id: str, reason: str) -> str:  # noqa: A002
    return f"kernel {id} was asked for by name and cannot run here: {reason}"


def reported(model: nn.Module) -> List[Report]:
    found: List[Report] = getattr(model, _REPORTS, [])
    return found


def report(model: nn.Module, id: str, found: List[Report]) -> None:  # noqa: A002
    """In place of what this kernel reported before."""
    others = [each for each in reported(model) if each.kernel != id]
    model.__dict__[_REPORTS] = sorted([*others, *dict.fromkeys(found)], key=lambda each: each.kernel)


def forget(model: nn.Module) -> None:
    model.__dict__.pop(_REPORTS, None)


def _place(name: str) -> str:
    """The experts of a list are alike: one line for all of them."""
    before, _, number = name.rpartition(".")
    return before if number.isdigit() and before.endswith("experts") else name


class PatchingKernel(BaseKernel):
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
            raise ConfigError(cannot_run(self.id, why_not))
        done = [Report(self.id, _place(name), True, self.why(patch)) for name, patch in plan.patches]
        self.prepare(plan.patches, model, mesh)
        for _, patch in plan.patches:
            patch.install()
        report(model, self.id, done + self.left(plan))
        return model

    def prepare(self, patches_: List[Tuple[str, Patch]], model: nn.Module, mesh: Any) -> None:
        """What has to be done with the model before."""

    def left(self, plan: Plan) -> List[Report]:
        return [Report(self.id, _place(name), False, why) for name, why in plan.left]

    def not_applied(self, model: nn.Module, plan: Plan, why_not: str) -> List[Report]:
        """What of it stands since an earlier application, and what is left alone."""
        standing = dict.fromkeys(_place(name) for name, patch in patches(model) if patch.kernel == self.id)
        why = f"stands since it was applied, unapply(model) takes it away; this time: {why_not}"
        left = [each for each in self.left(plan) if each.module not in standing]
        found = [Report(self.id, name, True, why) for name in standing] + left
        return found or [Report(self.id, "", False, why_not)]

    def why(self, patch: Patch) -> str:
        return patch.reason


@register_kernel("fused_moe", aliases=["npu_fused_moe"])
class FusedMoe(PatchingKernel):
    """The experts of a layer in one call forward and one backward."""

    nothing = "this model has no experts"

    def switched_off(self) -> Optional[str]:
        given = flags()
        return None if given.patch else f"{given.said('PATCH')} switches every kernel off"

    def plan(self, model: nn.Module, family: Family, named: str, mesh: Any) -> Plan:
        return plan_experts(model, family, named, mesh, self.grads)

    def look(self, model: nn.Module, mesh: Any = None) -> Tuple[Plan, Optional[str]]:
        mesh = mesh_for(model, mesh)
        plan, why_not = super().look(model, mesh)
        if why_not:
            return plan, why_not
        self._decisions = {sizes: _decision(sizes, mesh) for sizes in {patch.sizes() for _, patch in plan.patches}}
        decided = [(name, patch, self._decisions[patch.sizes()]) for name, patch in plan.patches]
        applied = [(name, patch) for name, patch, decision in decided if decision.applies]
        against = [(name, decision.reason) for name, _, decision in decided if not decision.applies]
        return Plan(applied, against + plan.left), None if applied else against[0][1]

    def prepare(self, patches_: List[Tuple[str, Patch]], model: nn.Module, mesh: Any) -> None:
        """Each rank keeps its share. What the mesh cannot share is refused before anything is given away."""
        for sizes in self._decisions if mesh is not None else ():
            mesh.experts_of(sizes[0])
        if mesh is not None and mesh.ep > 1:
            refuse_adapters(name for name, _ in patches_)
        for place, (name, patch) in enumerate(patches_):
            patch.take_share(_layer(name, place))  # type: ignore[attr-defined]
        if mesh is not None and mesh.ep > 1:
            guard(model)

    def why(self, patch: Patch) -> str:
        return f"{patch.reason}; {self._decisions[patch.sizes()].reason}"


def _layer(name: str, place: int) -> int:
    """Its number in a dotted name, model.layers.3.mlp; where there is none, which of the sparse layers it is."""
    return next((int(word) for word in name.split(".") if word.isdigit()), place)


def _decision(sizes: Tuple[int, int, int], mesh: Any) -> Decision:
    """On grouped products in layers of these sizes: what the environment asks for, and the library's rule.

    Of ranks that share a layer's experts all decide the same, by what the first one holds.
    """
    experts, hidden, intermediate = sizes
    ep = 0 if mesh is None else mesh.ep
    request = flags().gmm or "auto"
    if ep <= 1:
        return decide_gmm(request, experts, hidden, intermediate, ep)
    decision = decide_gmm(request, -(-experts // ep), hidden, intermediate, ep)
    if decision.applies or flags().gmm is not None:
        return decision
    return Decision(True, f"{ep} ranks share the experts, whose rows come together anyway; else: {decision.reason}")


@register_kernel("fused_rmsnorm", aliases=["npu_fused_rmsnorm"])
class FusedRmsNorm(PatchingKernel):
    """RMSNorm, standard, of 1 + weight, or gated."""

    def plan(self, model: nn.Module, family: Family, named: str, mesh: Any) -> Plan:
        return plan_norms(model, family, named)


@register_kernel("fused_rope", aliases=["npu_fused_rope"])
class FusedRope(PatchingKernel):
    """Rotary embedding of q and k."""

    def plan(self, model: nn.Module, family: Family, named: str, mesh: Any) -> Plan:
        return plan_ropes(model, family, named)


@register_kernel("fused_swiglu", aliases=["npu_fused_swiglu"])
class FusedSwiglu(PatchingKernel):
    """act(gate) * up of MLPs, act being what the model says."""

    def plan(self, model: nn.Module, family: Family, named: str, mesh: Any) -> Plan:
        return plan_mlps(model, family, named)
