"""Which experts of a model are on this rank: a mark on each module that holds some of a layer's.

A module with stacks [E, ., .] keeps the rows of its own experts, [e, ., .]; a ModuleList keeps the experts themselves,
at their numbers of the whole layer, and something empty in the place of the others. Parameters stay the objects that
they were: an optimizer that was made before, and has no state yet, goes on with what is left of them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Tuple

import torch
from torch import nn

from ..errors import ConfigError

_MARK = "_moeloom_share"


class Share(NamedTuple):
    """Experts [begin, begin + count) of num_experts of a layer, whose number errors name."""

    mesh: Any
    num_experts: int
    begin: int
    count: int
    layer: int = 0

    @property
    def here(self) -> range:
        return range(self.begin, self.begin + self.count)


class Placed(NamedTuple):
    """A parameter or buffer of experts. stacked: rows [begin, begin + count) of the whole one's first dimension; else
    all of one expert's, which other ranks do not have: its name is holder.number.rest."""

    share: Share
    stacked: bool
    holder: str
    number: int = -1
    rest: str = ""

    def of_expert(self, number: int) -> str:
        """The same one's name of another expert of the list."""
        return f"{self.holder}.{number}.{self.rest}"


class Elsewhere(nn.Module):
    """Stands in a list for an expert that another rank holds."""

    def forward(self, *_: Any, **__: Any) -> NoReturn:
        raise ConfigError("this expert is on another rank; the block that the kernel fused_moe patched reaches it")


def share_of(module: nn.Module) -> Optional[Share]:
    found: Optional[Share] = module.__dict__.get(_MARK)
    return found


def mark(module: nn.Module, num_experts: int, mesh: Any, layer: int = 0) -> Share:
    """Of a module that holds this rank's experts of a layer alone."""
    share = module.__dict__[_MARK] = Share(mesh, num_experts, *mesh.experts_of(num_experts), layer)
    return share


def shard_stacks(module: nn.Module, num_experts: int, mesh: Any, layer: int = 0) -> Share:
    """The module's own parameters and buffers, all [E, ...], keep this rank's rows; memory of the others is freed."""
    standing = share_of(module)
    if standing is not None:
        return _same(standing, mesh)
    share = mark(module, num_experts, mesh, layer)
    for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
        if tensor.dim() and tensor.size(0) == num_experts and share.count < num_experts:
            tensor.data = tensor.data[share.begin:share.begin + share.count].clone()
            tensor.grad = None
    return share


def shard_list(experts: nn.ModuleList, mesh: Any, layer: int = 0) -> Share:
    """The list keeps this rank's experts; memory of the others is freed, also where an optimizer knows them."""
    standing = share_of(experts)
    if standing is not None:
        return _same(standing, mesh)
    share = mark(experts, len(experts), mesh, layer)
    if share.count < share.num_experts:
        hooked: Any = experts
        hooked._register_state_dict_hook(_refuse_a_part)
    for number in set(range(len(experts))) - set(share.here):
        for parameter in experts[number].parameters():
            parameter.data, parameter.grad = parameter.data.new_empty(0), None
        experts[number] = Elsewhere()
    return share


def _same(standing: Share, mesh: Any) -> Share:
    if standing.mesh is not mesh:
        raise ConfigError(f"its experts are shared among the ranks of {standing.mesh!r} already, not of {mesh!r}; load "
                          "the model again")
    return standing


class OwnState(OrderedDict):  # type: ignore[type-arg]
    """model.state_dict(destination=OwnState()): of who knows that it has a part of the experts."""


def _refuse_a_part(experts: nn.Module, state: Any, *_: Any) -> None:
    """A hook of state_dict(), by which PEFT saves adapters: those of experts on other ranks would be lost."""
    has_adapters = any(name.rpartition(".")[2] == "base_layer" for name, _ in experts.named_modules())
    if has_adapters and not isinstance(state, OwnState):
        raise ConfigError("adapters are on experts that ranks share, and this rank has a part of them; on every rank, "
                          "moeloom.torch.save_pretrained(model.merge_and_unload(), folder, mesh) saves the whole "
                          "model, moeloom.torch.save_checkpoint what a run goes on from")


def shares(model: nn.Module) -> Iterator[Tuple[str, nn.Module, Share]]:
    """Modules that hold experts, by dotted name."""
    for name, module in model.named_modules():
        share = share_of(module)
        if share is not None:
            yield name, module, share


def local_experts(experts: nn.ModuleList) -> List[Tuple[int, nn.Module]]:
    """Of a list those that are here, by number; all of one that is not shared."""
    share = share_of(experts)
    here = range(len(experts)) if share is None else share.here
    return [(number, experts[number]) for number in here]


def placed(model: nn.Module) -> Dict[str, Placed]:
    """Parameters and buffers of experts by their names in the model; those of a mesh of ep = 1 too."""
    found: Dict[str, Placed] = {}
    for name, module, share in shares(model):
        is_list = isinstance(module, nn.ModuleList)
        for inner, tensor in (*module.named_parameters(recurse=is_list), *module.named_buffers(recurse=is_list)):
            where = f"{name}.{inner}" if name else inner
            if is_list:
                number, _, rest = inner.partition(".")
                found[where] = Placed(share, False, name, int(number), rest)
            elif tensor.dim() and tensor.size(0) == share.count:
                found[where] = Placed(share, True, name)
    return found


def mesh_of(model: nn.Module) -> Any:
    """The mesh that its experts are shared on; None where they are not."""
    return next((share.mesh for _, _, share in shares(model)), None)


def mesh_for(model: nn.Module, mesh: Any = None) -> Any:
    """The one that was given, or that its experts are shared on. ConfigError where these are two."""
    standing = mesh_of(model)
    if mesh is None or standing is None or standing is mesh:
        return standing if mesh is None else mesh
    raise ConfigError(f"the model's experts are shared among the ranks of {standing!r}, and {mesh!r} was given; "
                      "expected the same mesh, or none")
