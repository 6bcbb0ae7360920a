"""What a kernel would do with a model: a patch for each module that it knows, a reason for each that it does not."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Type

import torch
from torch import nn

from . import patches as table
from ._blocks import GraniteBlock, ListedBlock, ListedMethod, StackedExperts
from ._elementwise import BareNorm, ExpertsGate, GatedNorm, Mlp, Norm
from ._lists import why_not_stacked
from ._patch import FORMATS, Patch
from ._product_blocks import GptOssExperts, InOutExperts, Llama4Block
from ._rope import Rope, attention_globals
from ._shares import local_experts

# Of Hugging Face's classes and of torch's own; activations with other settings than usual are not told apart by these.
_ACTIVATIONS = {"SiLU": "silu", "SiLUActivation": "silu", "GELUTanh": "gelu_pytorch_tanh",
                "PytorchGELUTanh": "gelu_pytorch_tanh", "NewGELUActivation": "gelu_new", "GELUActivation": "gelu"}
_FUNCTIONS = {torch.nn.functional.silu: "silu", torch.nn.functional.gelu: "gelu"}


class Plan(NamedTuple):
    patches: List[Tuple[str, Patch]]
    left: List[Tuple[str, str]]  # module, why


class Left(Exception):
    """A module is left alone; the text says why."""


Maker = Callable[[nn.Module, Any], Optional[Patch]]


def _plan(model: nn.Module, rows: Mapping[str, Any], make: Maker, concerns: Callable[[nn.Module, str], bool],
          named: str) -> Plan:
    """concerns: whether a module, and its class's name, would be this kernel's business if the table had it."""
    plan = Plan([], [])
    for name, module in model.named_modules():
        class_name = type(module).__name__
        try:
            if class_name in rows:
                patch = make(module, rows[class_name])
                if patch is not None:
                    plan.patches.append((name, patch))
            elif concerns(module, class_name):
                raise Left(f"class {class_name} is not one that this kernel knows of model type {named}")
        except Left as why:
            plan.left.append((name, str(why)))
    return plan


def activation_of(module: nn.Module) -> str:
    act: Any = getattr(module, "act_fn", None) or getattr(module, "activation_fn", None) or getattr(
        module, "activation", None)
    if isinstance(act, nn.GELU):
        return "gelu" if act.approximate == "none" else "gelu_pytorch_tanh"
    kind = _ACTIVATIONS.get(type(act).__name__) if isinstance(act, nn.Module) else _FUNCTIONS.get(act)
    if kind is None or getattr(act, "inplace", False):
        spelled = type(act).__name__ if isinstance(act, nn.Module) else getattr(act, "__name__", act)
        raise Left(f"its activation is {spelled}; known: silu, swish, gelu, gelu_new, gelu_pytorch_tanh")
    return kind


# ---- experts ----

_FLAGS = {"is_transposed": False, "is_concatenated": True, "has_bias": False, "has_gate": True}


def _require_flags(module: nn.Module, **differ: bool) -> None:
    """transformers 5 says of an experts class how it lies; it must be as the table has it."""
    for flag, expected in {**_FLAGS, **differ}.items():
        found = getattr(module, flag, expected)
        if found != expected:
            raise Left(f"its class says {flag} = {found}, the table {expected}")


def _require_stacks(gate_up: Any, down: Any, transposed: bool = False) -> None:
    for name, weight in (("gate and up", gate_up), ("down", down)):
        if not isinstance(weight, torch.Tensor) or weight.dim() != 3:
            raise Left(f"{name} is no stack of three dimensions")
        if weight.device.type != "cpu" or weight.dtype not in FORMATS:
            raise Left(f"{name} is {weight.dtype} on {weight.device}; expected 32 or 16 bits on the CPU")
    experts, hidden, width = down.shape if not transposed else (down.size(0), down.size(2), down.size(1))
    expected = (experts, hidden, 2 * width) if transposed else (experts, 2 * width, hidden)
    if tuple(gate_up.shape) != expected:
        raise Left(f"gate and up are {list(gate_up.shape)}; expected {list(expected)} beside down {list(down.shape)}")


def _of_module(module: nn.Module, *names: str) -> List[Any]:
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        raise Left(f"it has no {' and no '.join(missing)}")
    return [getattr(module, name) for name in names]


def _arguments(module: nn.Module) -> List[str]:
    return list(inspect.signature(type(module).forward).parameters)


def _listed(module: nn.Module, row: Any, mesh: Any, grads: str) -> Optional[Patch]:
    experts, = _of_module(module, "experts")
    if not isinstance(experts, nn.ModuleList):
        return None  # transformers 5: the experts' own class
    if not len(experts):
        raise Left("its list of experts is empty")
    reason = why_not_stacked(experts, row.names)
    if reason and not _are_called(experts, mesh):
        raise Left(reason)
    kinds = {activation_of(expert) for _, expert in local_experts(experts)}
    if len(kinds) != 1:
        raise Left(f"its experts have several activations: {sorted(kinds)}")
    kind = kinds.pop()
    if isinstance(row, table.ListedMoe):
        if not hasattr(type(module), "moe"):
            raise Left("its class has no method moe, as that of transformers 4 has")
        made: Patch = ListedMethod(module, kind, mesh, grads, row.names, "", "", False)
    else:
        made = ListedBlock(module, kind, mesh, grads, row.names, row.routing, row.shared, row.returns_logits)
    if reason:
        made.reason = f"each expert is called with its rows: {reason}"
    return made


def _are_called(experts: nn.ModuleList, mesh: Any) -> bool:
    """Whether rows of other ranks can come to modules that no stack can hold, as with biases or under adapters."""
    return mesh is not None and mesh.ep > 1 and all(
        parameter.device.type == "cpu" and parameter.dtype in FORMATS for parameter in experts.parameters())


def _stacked(module: nn.Module, row: table.Stacked, mesh: Any, grads: str) -> Patch:
    gate_up, down = _of_module(module, "gate_up_proj", "down_proj")
    _require_flags(module)
    transposed = bool(row.in_out_if) and row.in_out_if in _arguments(module)
    _require_stacks(gate_up, down, transposed)
    made: Type[Any] = InOutExperts if transposed else StackedExperts
    return made(module, activation_of(module), mesh, grads)


def _granite(module: Any, row: table.Granite, mesh: Any, grads: str) -> Optional[Patch]:
    if not hasattr(module, "input_linear"):
        return None  # transformers 5: GraniteMoeExperts
    _require_stacks(module.input_linear.weight, module.output_linear.weight)
    return GraniteBlock(module, activation_of(module), mesh, grads)


def _gpt_oss(module: nn.Module, row: table.GptOss, mesh: Any, grads: str) -> Patch:
    gate_up, down, *_, alpha, limit = _of_module(module, "gate_up_proj", "down_proj", "gate_up_proj_bias",
                                                 "down_proj_bias", "alpha", "limit")
    _require_flags(module, is_transposed=True, is_concatenated=False, has_bias=True)
    _require_stacks(gate_up, down, transposed=True)
    if (alpha, limit) != (1.702, 7.0):
        raise Left(f"alpha and limit are {alpha} and {limit}; known: 1.702 and 7.0")
    # What transformers 5 splits off its forward, it also gives the weights of the chosen experts alone.
    return GptOssExperts(module, "gpt_oss", mesh, grads, weights_of_all=not hasattr(type(module), "_apply_gate"))


def _llama4(module: nn.Module, row: table.Llama4, mesh: Any, grads: str) -> Patch:
    experts, *_ = _of_module(module, "experts", "router", "shared_expert", "top_k", "num_experts")
    gate_up, down = _of_module(experts, "gate_up_proj", "down_proj")
    _require_stacks(gate_up, down, transposed=True)
    return Llama4Block(module, activation_of(experts), mesh, grads)


def _part(module: nn.Module, row: table.Part, mesh: Any, grads: str) -> Optional[Patch]:
    return None


_MAKERS: Dict[type, Callable[..., Optional[Patch]]] = {
    table.Listed: _listed, table.ListedMoe: _listed, table.Stacked: _stacked, table.Granite: _granite,
    table.GptOss: _gpt_oss, table.Llama4: _llama4, table.Part: _part}


def has_experts(module: nn.Module, class_name: str) -> bool:
    return class_name.endswith("Experts") or isinstance(module._modules.get("experts"), nn.ModuleList)


def plan_experts(model: nn.Module, family: table.Family, named: str, mesh: Any, grads: str) -> Plan:
    return _plan(model, family.experts, lambda m, row: _MAKERS[type(row)](m, row, mesh, grads), has_experts, named)


# ---- MLPs, norms, attention ----

def _mlp(module: nn.Module, row: table.MlpRow) -> Patch:
    _of_module(module, *filter(None, row.names))
    for setting in ("residual_dropout", "activation_sparsity"):
        if getattr(module, setting, 0):
            raise Left(f"its {setting} is {getattr(module, setting)}; expected 0")
    return Mlp(module, row.names, row.kind or activation_of(module))


def _gate(module: nn.Module, row: Any) -> Optional[Patch]:
    """Of an experts class of transformers 5: what its forward calls between the products."""
    gate = getattr(type(module), "_apply_gate", None)
    if isinstance(row, table.GptOss) and gate is not None:
        return ExpertsGate(module, "gpt_oss")
    if isinstance(row, table.Stacked) and getattr(gate, "__name__", "") == "_default_apply_gate":
        return ExpertsGate(module, activation_of(module))
    return None


def plan_mlps(model: nn.Module, family: table.Family, named: str) -> Plan:
    """MLPs, those that are experts in a list too, and what stands between the products of other experts."""
    gates = _plan(model, family.experts, _gate, lambda m, name: False, named)
    mlps = _plan(model, family.mlps, lambda m, row: None if isinstance(row, table.Part) else _mlp(m, row),
                 lambda m, name: name.endswith(("MLP", "Mlp")), named)
    return Plan(gates.patches + mlps.patches, gates.left + mlps.left)


def _norm(module: nn.Module, row: table.NormRow) -> Patch:
    if not (hasattr(module, "variance_epsilon") or hasattr(module, "eps")):
        raise Left("it has no variance_epsilon and no eps")
    if row.may_lack_weight and not getattr(module, "with_scale", True):
        return BareNorm(module)
    weight, = _of_module(module, "weight")
    if weight.device.type != "cpu" or weight.dtype not in FORMATS:
        raise Left(f"its weight is {weight.dtype} on {weight.device}; expected 32 or 16 bits on the CPU")
    if row.gated and getattr(module, "activation", "silu") not in ("silu", "swish"):
        raise Left(f"its gate's activation is {module.activation}; known: silu")
    return GatedNorm(module) if row.gated else Norm(module, row.offset)


def plan_norms(model: nn.Module, family: table.Family, named: str) -> Plan:
    return _plan(model, family.norms, _norm, lambda m, name: name.endswith(("RMSNorm", "RMSNormGated")), named)


def _rope(module: nn.Module, row: Any) -> Patch:
    globals_ = attention_globals(module)
    found = {name: pairs for name, pairs in row.items() if callable(globals_.get(name))}
    if not found:
        raise Left(f"its file has no function {' or '.join(row)}")
    for name in found:
        positions = inspect.signature(globals_[name]).parameters.get("position_ids")
        if positions is not None and positions.default is inspect.Parameter.empty:
            raise Left(f"{name} of its file picks rows by position_ids, which this kernel does not")
    return Rope(module, found)


def plan_ropes(model: nn.Module, family: table.Family, named: str) -> Plan:
    return _plan(model, family.attentions, _rope, lambda m, name: name.endswith(("Attention", "Attention2")), named)
