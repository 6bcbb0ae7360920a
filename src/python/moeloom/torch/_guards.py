"""What a model cannot do any more as a whole one when ranks share its experts: it is kept from it, or it says so."""

from __future__ import annotations

import sys
import weakref
from typing import Any, Dict, Iterable, Iterator, List, Optional

from torch import nn

from ..errors import ConfigError
from ._patch import Patch
from ._shares import placed

_OF_DDP = "_ddp_params_and_buffers_to_ignore"
_INSIDE = ("", "base_model.model.")  # how names of a model begin in itself, and in PEFT's around it
_WRAPPED = "base_layer"  # as PEFT calls what an adapter is around


class _Of:
    """Of a model, which it does not keep alive; a copy of the model has one of its own."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)

    def __getstate__(self) -> Dict[str, Any]:
        return {"model": self._model()}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self._model = weakref.ref(state["model"])


class _Refusal(_Of):
    """In place of a model's own save_pretrained, which may write adapters, for every rank has these whole."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        model: Any = self._model()
        if getattr(model, "_hf_peft_config_loaded", False):
            return type(model).save_pretrained(model, *arguments, **named)
        raise ConfigError("this model's experts are shared among ranks, and each rank has a part of it; "
                          "moeloom.torch.save_pretrained(model, folder, mesh), called on every rank, saves the whole")


class _Experts(_Of):
    """Names of its experts' parameters, when they are asked for: adapters give them others."""

    def __iter__(self) -> Iterator[str]:
        model = self._model()
        names = [] if model is None else sorted(placed(model))
        return (inside + name for inside in _INSIDE for name in names)


def guard(model: Any) -> None:
    """Of a model whose experts ranks share, ep > 1: model.save_pretrained says from here on that it would write a part
    of it, and DistributedDataParallel leaves the experts alone. A PeftModel saves its adapters as ever; the model
    inside of it refuses."""
    if hasattr(model, "get_base_model"):
        model = model.get_base_model()
    if hasattr(type(model), "save_pretrained"):
        model.__dict__["save_pretrained"] = _Refusal(model)
    keep_from_ddp(model)


def keep_from_ddp(model: nn.Module) -> None:
    """DDP around it, or around PEFT's around it, neither averages gradients of experts nor makes weights alike."""
    model.__dict__[_OF_DDP] = _Experts(model)


# ---- experts that are shared in their first forward ----

def callers(experts: nn.Module) -> List[nn.Module]:
    """Modules whose forward came to this one and that contain it."""
    found: List[nn.Module] = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, nn.Module) and caller is not experts and all(caller is not each for each in found):
            if any(module is experts for module in caller.modules()):
                found.append(caller)
        frame = frame.f_back
    return found


def guard_callers(experts: nn.Module) -> None:
    """The models that it is in, before it is shared. ConfigError where DDP has them already."""
    found = callers(experts)
    if any(type(module).__name__ == "DistributedDataParallel" for module in found):
        raise ConfigError("DistributedDataParallel is around a model whose experts are whole, and the forward would "
                          "share them now; call hf.shard(model, mesh) before DistributedDataParallel(model)")
    for module in found:
        if hasattr(type(module), "save_pretrained") and not hasattr(module, "get_base_model"):
            guard(module)


class Registered(Patch):
    """Experts that were shared by experts_implementation="moeloom": another one would miss those of other ranks."""

    kernel = "experts_implementation"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        module = self.module
        asked = getattr(getattr(module, "config", None), "_experts_implementation", "moeloom")
        if asked != "moeloom":
            raise ConfigError(f'experts_implementation="{asked}" would compute with this rank\'s experts alone; ranks '
                              'share them, and "moeloom" reaches those of the others')
        refuse_computed(module)
        return self.original(*arguments, **named)


# ---- adapters ----

def _refused_adapters() -> ConfigError:
    return ConfigError("an adapter is on a stack of experts that ranks share, and would hold those of this rank as if "
                       "they were all; name target_modules that are no experts, or merge_and_unload() before the "
                       "experts are shared")


def refuse_adapters(names: Iterable[str]) -> None:
    """ConfigError where one of the modules with stacks, by dotted names, is inside of an adapter."""
    if any(name.rpartition(".")[2] == _WRAPPED for name in names):
        raise _refused_adapters()


def refuse_computed(experts: Optional[nn.Module]) -> None:
    """ConfigError where its stacks are computed from others in this forward, as PEFT's target_parameters do it."""
    if experts is not None and "parametrizations" in experts._modules:
        raise _refused_adapters()
