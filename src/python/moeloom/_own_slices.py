"""Which tensors of a folder, and which rows of them, are a rank's own, by the names that transformers gives them."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

from torch import nn

from .errors import ConfigError
from .torch._shares import placed, shares
from .torch._slices import Arena

State = Dict[str, Any]


def keep_own(model: Any, state: State) -> None:
    """Of the files' tensors, state, those of other ranks' experts go, and stacks become their rows of this rank."""
    where = placed(model)
    by_parameter: Dict[Any, List[str]] = {}
    for name, target in _targets(model, list(state)):
        by_parameter.setdefault(target, []).append(name)
    lists = tuple(f"{name}." for name, module, _ in shares(model) if isinstance(module, nn.ModuleList))
    here = set(model.state_dict())
    arenas = {name: Arena() for name in lists}
    for (target, _), names in by_parameter.items():
        if target.startswith(lists) and target not in here:
            for name in names:
                del state[name]
        elif target in where and where[target].stacked:
            share = where[target].share
            if len(names) == share.num_experts:  # one by one in the files, in the order in which they are stacked
                for number, name in enumerate(names):
                    if number not in share.here:
                        del state[name]
            else:
                for name in names:
                    _require_experts(name, state[name], share.num_experts)
                    state[name] = state[name].rows(share.begin, share.count)
        elif target in where:
            for name in names:
                state[name].lie_in(arenas[f"{where[target].holder}."])


def _require_experts(name: str, found: Any, num_experts: int) -> None:
    if not found.shape or found.shape[0] != num_experts:
        raise ConfigError(f"{name} is {list(found.shape)}; expected {num_experts} experts in its first dimension, of "
                          "which ranks read their own; load it with transformers and give it to shard(model, mesh)")


def _targets(model: Any, names: List[str]) -> Iterator[Tuple[str, Tuple[str, Any]]]:
    """What each tensor of the files becomes: a parameter, and the pattern of a conversion."""
    prefix, here = model.base_model_prefix, model.state_dict()
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import (WeightConverter, WeightRenaming, dot_natural_key,
                                                     rename_source_key)
    except ImportError:
        renamed = model._get_key_renaming_mapping(names, getattr(model, "_checkpoint_conversion_mapping", None) or None,
                                                  False, False)
        for name in names:
            yield name, (renamed[name], None)
        return
    conversions = get_model_conversion_mapping(model)
    renamings = [each for each in conversions if isinstance(each, WeightRenaming)]
    converters = [each for each in conversions if isinstance(each, WeightConverter)]
    for name in sorted(names, key=dot_natural_key):
        yield name, rename_source_key(name, renamings, converters, prefix, here)
