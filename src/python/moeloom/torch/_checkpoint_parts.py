"""What a checkpoint consists of: tensors with their places in the whole ones, and of each rank what is no tensor."""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import nn

from ..errors import ConfigError, IoError
from ._files import Spec, is_first, spec_of
from ._shares import OwnState, Placed

FORMAT = 1


class Part(NamedTuple):
    """A tensor, and where it stands in the file: rows from `begin` on of spec's shape. mine: this rank writes it."""

    spec: Spec
    tensor: torch.Tensor
    begin: int
    mine: bool


def part(name: str, tensor: torch.Tensor, where: Optional[Placed], mesh: Any) -> Part:
    """where: the parameter's, None for what every rank has. A state's tensor has its rows where the parameter has."""
    if where is None:
        return Part(spec_of(name, tensor), tensor, 0, is_first(mesh))
    mine = where.share.mesh.dp_rank == 0
    if not where.stacked:
        return Part(spec_of(name, tensor), tensor, 0, mine)
    if tensor.size(0) != where.share.count:
        raise ConfigError(f"{name} is {list(tensor.shape)}; expected {where.share.count} rows, one for each expert of "
                          "this rank: this optimizer's state cannot be shared out again")
    shape = (where.share.num_experts, *tensor.shape[1:])
    return Part(spec_of(name, tensor, shape), tensor, where.share.begin, mine)


def weights(model: nn.Module, where: Dict[str, Placed], mesh: Any) -> Iterator[Part]:
    """Parameters and buffers of the state dict, by their names in the file."""
    for name, tensor in model.state_dict(destination=OwnState()).items():
        if isinstance(tensor, torch.Tensor):
            yield part(f"model.{name}", tensor, where.get(name), mesh)


class Parameters:
    """Those that the optimizer has, by the model's names; of experts that are elsewhere nothing is left to name."""

    def __init__(self, model: nn.Module, optimizer: Any) -> None:
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.group_of: Dict[str, int] = {}
        self.by_name: Dict[str, torch.Tensor] = {}
        for number, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                name = names.get(id(parameter))
                if name is not None:
                    self.group_of[name], self.by_name[name] = number, parameter
                elif parameter.numel():
                    raise ConfigError(f"group {number} of the optimizer has a parameter of shape "
                                      f"{list(parameter.shape)} that is none of the model's; make the optimizer of "
                                      "model.parameters()")


def states(optimizer: Any, parameters: Parameters, where: Dict[str, Placed],
           mesh: Any) -> Tuple[List[Part], Dict[str, Dict[str, Any]]]:
    """Tensors that go to the shards, and what is small, by parameter and key."""
    parts: List[Part] = []
    small: Dict[str, Dict[str, Any]] = {}
    for name, parameter in parameters.by_name.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if "." in key:
                raise ConfigError(f'the optimizer calls a state "{key}"; expected no point in it')
            if isinstance(value, torch.Tensor) and value.dim():
                parts.append(part(f"optimizer.{key}.{name}", value, where.get(name), mesh))
            else:
                small.setdefault(name, {})[key] = value
    return parts, small


def hyperparameters(optimizer: Any) -> List[Dict[str, Any]]:
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


# ---- a rank's own file ----

_PLAIN = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "torch Size"}


def _is_plain(name: str) -> bool:
    """Of a class or function that a pickle names, with its module before."""
    module, _, attribute = name.partition(" ")
    return name in _PLAIN or (module == "torch" and (attribute.endswith("Storage") or
                                                     isinstance(getattr(torch, attribute, None), torch.dtype)))


def loads(data: bytes) -> Any:
    """What torch.save wrote, of the kinds that run no code."""
    if int(torch.__version__.split(".")[0]) >= 2:
        return torch.load(io.BytesIO(data), weights_only=True)
    # weights_only of 1.13 reads no float, and its pickle_module is not used.
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        record = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        for code, name, _ in pickletools.genops(archive.read(record)):
            names_something = code.name in ("GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4")
            if names_something and not _is_plain(str(name)):
                raise pickle.UnpicklingError(f"{name} is neither a tensor nor a plain value")
    return torch.load(io.BytesIO(data))


def rank_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}.pt"


def read_ranks(folder: Path) -> List[Dict[str, Any]]:
    """What every rank wrote of its own."""
    first = _read_rank(folder, 0)
    if first.get("format") != FORMAT:
        raise IoError(f"{folder} is a checkpoint of format {first.get('format')}; this version reads {FORMAT}")
    return [first, *(_read_rank(folder, rank) for rank in range(1, first["ranks"]))]


def _read_rank(folder: Path, rank: int) -> Dict[str, Any]:
    file = rank_file(folder, rank)
    try:
        found: Dict[str, Any] = loads(file.read_bytes())
        return found
    except FileNotFoundError:
        raise IoError(f"{file} is missing, of {folder}") from None
    except Exception as error:
        raise IoError(f"{file} is damaged: {error}") from error


def union(ranks: List[Dict[str, Any]]) -> List[Spec]:
    """Tensors of all ranks; a name that two have is one tensor."""
    specs: Dict[str, Spec] = {}
    for number, rank in enumerate(ranks):
        for spec in (Spec(name, dtype, tuple(shape)) for name, dtype, shape in rank["tensors"]):
            if specs.setdefault(spec.name, spec) != spec:
                raise ConfigError(f"{spec.name} is {spec.dtype} {list(spec.shape)} on rank {number}, and "
                                  f"{specs[spec.name].dtype} {list(specs[spec.name].shape)} on one before")
    return [specs[name] for name in sorted(specs)]


# ---- folders: the one that is written, the one that stands, the one before ----

def beside(folder: Path, word: str) -> Path:
    return folder.with_name(f".{folder.name}.{word}")


def is_checkpoint(folder: Path) -> bool:
    return rank_file(folder, 0).is_file()


def standing(folder: Path) -> Path:
    """What is to be loaded: after a crash between two renames the one before."""
    for path in (folder, beside(folder, "before")):
        if is_checkpoint(path):
            return path
    raise IoError(f"{folder} is no checkpoint: it has no {rank_file(folder, 0).name}; save_checkpoint writes one")
