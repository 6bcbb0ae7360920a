"""How a model's tensors are called and lie in Hugging Face's files, and which part of each is on this rank.

transformers 4 writes the state dict. transformers 5 holds stacks of experts where files have lists, and converts when
it saves. Here its own conversion is asked twice: with tensors of the whole shapes and no memory, which says what the
files have, and layer by layer with this rank's rows, whose numbers then begin at 0.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import nn

from ..errors import ConfigError
from ._files import Spec, spec_of
from ._shares import OwnState, Placed, placed

State = Dict[str, torch.Tensor]
_LAYER = re.compile(r"^.*?\.\d+\.")


class Group(NamedTuple):
    """Tensors of the state dict that are converted together: experts of a layer, or what else it has."""

    is_experts: bool
    names: List[str]


class Layout:
    """specs: of all tensors of the whole model, in the files' order and the same on every rank."""

    def __init__(self, model: nn.Module, written: Path) -> None:
        self.written = written
        self._model = model
        self._where = placed(model)
        self._state = _saved_state(model)
        self._whole = self._whole_state()
        converted = _converted(model, self._whole)
        self.specs: List[Spec] = [spec_of(name, converted[name]) for name in sorted(converted)]
        self._shapes = {spec.name: spec.shape for spec in self.specs}
        self.groups = self._groups()

    def _whole_state(self) -> State:
        """Of no memory, with experts of other ranks."""
        whole: State = {}
        for name, tensor in self._state.items():
            where = self._where.get(name)
            if where is None or where.stacked:
                shape = tensor.shape if where is None else (where.share.num_experts, *tensor.shape[1:])
                whole[name] = torch.empty(shape, dtype=tensor.dtype, device="meta")
            else:
                for number in range(where.share.num_experts):
                    whole[where.of_expert(number)] = torch.empty_like(tensor, device="meta")
        return whole

    def _groups(self) -> List[Group]:
        groups: Dict[Tuple[bool, str], List[str]] = {}
        for name in self._state:
            layer = _LAYER.match(name)
            groups.setdefault((name in self._where, layer[0] if layer else ""), []).append(name)
        return [Group(is_experts, names) for (is_experts, _), names in groups.items()]

    def tensors(self, group: Group) -> Iterator[Tuple[str, torch.Tensor, int]]:
        """Those of this rank by their names in the file, and the row that each begins at."""
        converted = _converted(self._model, {name: self._state[name] for name in group.names})
        where: Optional[Placed] = self._where.get(group.names[0])
        if where is None or not where.stacked or where.share.count == where.share.num_experts:
            yield from ((name, tensor, 0) for name, tensor in converted.items())
            return
        everywhere = _converted(self._model, {name: self._whole[name] for name in group.names})
        for name, tensor in converted.items():
            yield self._moved(name, tensor, where, everywhere)

    @staticmethod
    def _moved(name: str, tensor: torch.Tensor, where: Placed,
               everywhere: State) -> Tuple[str, torch.Tensor, int]:
        """What was made of this rank's rows -> where it stands in the whole."""
        begin, experts = where.share.begin, where.share.num_experts
        whole = everywhere.get(name)
        if whole is not None and tuple(whole.shape) == (experts, *tensor.shape[1:]):
            return name, tensor, begin
        for number in re.finditer(r"(?<=\.)\d+(?=\.)", name):
            def numbered(other: int, place: Any = number) -> str:
                return f"{name[:place.start()]}{other}{name[place.end():]}"
            if all(numbered(other) in everywhere for other in range(experts)) and numbered(experts) not in everywhere:
                return numbered(int(number[0]) + begin), tensor, 0
        raise ConfigError(f"{name} is made of experts in a way that cannot be divided among ranks; save it from one "
                          "process")


# ---- Hugging Face's ways ----

def _saved_state(model: Any) -> State:
    """The state dict without what is not saved: names to ignore, and the others of tensors that are tied."""
    whole = model.state_dict(destination=OwnState())
    state = {name: tensor for name, tensor in whole.items() if isinstance(tensor, torch.Tensor)}
    for name in getattr(model, "_keys_to_ignore_on_save", None) or ():
        state.pop(name, None)
    by_place: Dict[Any, List[str]] = {}
    for name, tensor in state.items():
        if tensor.numel():
            by_place.setdefault((tensor.data_ptr(), tuple(tensor.shape), tensor.stride()), []).append(name)
    for names in by_place.values():
        tied = [name for name in sorted(names) if _is_tied(model, name)]
        for name in tied[:len(names) - 1]:
            del state[name]
    return state


def _is_tied(model: Any, name: str) -> bool:
    """Whether it is made from another one when the model is loaded."""
    if "transformers" not in sys.modules or not hasattr(type(model), "save_pretrained"):
        return False
    from transformers.modeling_utils import _get_tied_weight_keys
    return any(re.search(pattern, name) for pattern in _get_tied_weight_keys(model) or ())


def _converted(model: Any, state: State) -> State:
    """As the files of the model have it."""
    if "transformers" not in sys.modules or not hasattr(type(model), "save_pretrained"):
        return state
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        return {_renamed(model, name): tensor for name, tensor in state.items()}
    converted: State = revert_weight_conversion(model, dict(state))
    return converted


def _renamed(model: Any, name: str) -> str:
    """transformers 4, whose composites of the table VLMS have other names on disk."""
    from transformers import modeling_utils
    composites = getattr(modeling_utils, "VLMS", ())
    if any(word in each.__name__.lower() for each in type(model).__mro__[:-1] for word in composites):
        for to, pattern in (getattr(model, "_checkpoint_conversion_mapping", None) or {}).items():
            replacement = re.sub(r"\(.*\)", "", to.lstrip("^"))
            name, count = re.subn(pattern, replacement, name)
            if count:
                break
    fix = getattr(model, "_fix_state_dict_key_on_save", None)
    return fix(name)[0] if fix is not None else name
