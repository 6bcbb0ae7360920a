"""A run's weights and optimizer on disk: each rank writes its experts' rows, and any number of ranks reads them again.

    save_checkpoint(model, optimizer, folder, mesh, step=step, scheduler=scheduler.state_dict())
    extra = load_checkpoint(model, optimizer, folder, mesh)

A folder has model.safetensors (or shards of it), with weights as "model.NAME" and the optimizer's tensors as
"optimizer.KEY.NAME", and of each rank a rank-NUMBER.pt: what is no tensor of that size. It takes the place of the
folder before at one stroke, by a rename; between two of them the one before is `.NAME.before`, which loading knows.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any, Dict, List, Tuple, Union

import torch
from torch import nn

from ..errors import ConfigError, IoError
from ._checkpoint_parts import (FORMAT, Parameters, Part, beside, hyperparameters, is_checkpoint, loads, rank_file,
                                read_ranks, standing, states, union, weights)
from ._files import (Folder, Shards, Spec, dtype_of, is_first, require_one_folder, sync, together, unwrapped,
                     write_folder)
from ._shares import mesh_for, placed, shares


def save_checkpoint(model: nn.Module, optimizer: Any, folder: Union[str, Path], mesh: Any = None, **extra: Any) -> None:
    """Weights, the optimizer's state and settings, and `extra`, which load_checkpoint returns.

    optimizer: any of torch.optim's kind whose state is scalars and tensors that begin, for a stack of experts, with
    its experts. extra: tensors, numbers, texts, and lists and dicts of them; a TypeError names what is not; each rank
    has its own. Collective; every rank sees the folder. Until it returns a checkpoint that stood there is loadable.
    mesh None: that of the model's experts, or one process.
    """
    folder, model = Path(folder).absolute(), unwrapped(model)
    mesh = mesh_for(model, mesh)
    require_one_folder(folder, mesh)
    written = beside(folder, "saving")
    parts, own = together(mesh, lambda: _survey(model, optimizer, mesh, extra))
    together(mesh, lambda: _begin(folder) if is_first(mesh) else None)
    together(mesh, lambda: _write_own(written, own, mesh))
    # Every rank reads what all have: experts of other ranks have names that this one does not know.
    specs = together(mesh, lambda: union(read_ranks(written)))

    def write(shards: Shards) -> None:
        for part in parts:
            if part.mine:
                shards.write(part.spec.name, part.tensor, part.begin)
    write_folder(written, specs, mesh, write)
    together(mesh, lambda: _replace(folder, written) if is_first(mesh) else None)


def _survey(model: nn.Module, optimizer: Any, mesh: Any, extra: Dict[str, Any]) -> Tuple[List[Part], Dict[str, Any]]:
    _require_readable(extra, "extra")
    where = placed(model)
    parameters = Parameters(model, optimizer)
    parts, small = states(optimizer, parameters, where, mesh)
    parts = [*weights(model, where, mesh), *parts]
    groups = hyperparameters(optimizer)
    for number, group in enumerate(groups):
        _require_readable(group, f"in group {number} of the optimizer")
    for name in list(small)[:1]:
        _require_readable(small[name], f"in the optimizer's state of {name}")
    return parts, {"format": FORMAT, "ranks": 1 if mesh is None else mesh.size, "groups": groups,
                   "group_of": parameters.group_of, "small": small, "extra": extra,
                   "tensors": [tuple(part.spec) for part in parts]}


def _require_readable(values: Dict[str, Any], what: str) -> None:
    """A TypeError now rather than an error of the load."""
    for key, value in values.items():
        kept = io.BytesIO()
        try:
            torch.save(value, kept)
            loads(kept.getvalue())
        except Exception as error:
            raise TypeError(f'{what} "{key}" is a {type(value).__name__}, which cannot be read back safely; expected '
                            "tensors, numbers, texts, None, and lists, tuples and dicts of them") from error


def _begin(folder: Path) -> None:
    """An empty folder to write in."""
    if folder.exists() and not is_checkpoint(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise IoError(f"{folder} is there and is no checkpoint, so it is not replaced; name another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    written, before = beside(folder, "saving"), beside(folder, "before")
    shutil.rmtree(written, ignore_errors=True)
    if is_checkpoint(before):
        if is_checkpoint(folder):
            shutil.rmtree(before)
        else:
            before.rename(folder)
    written.mkdir()


def _write_own(folder: Path, own: Dict[str, Any], mesh: Any) -> None:
    file = rank_file(folder, 0 if mesh is None else mesh.rank)
    torch.save(own, file)
    sync(file)


def _replace(folder: Path, written: Path) -> None:
    before = beside(folder, "before")
    sync(written)
    if is_checkpoint(folder):
        shutil.rmtree(before, ignore_errors=True)
        folder.rename(before)
    written.rename(folder)  # also over an empty folder
    sync(folder.parent)
    shutil.rmtree(before, ignore_errors=True)


# ---- load ----

def load_checkpoint(model: nn.Module, optimizer: Any, folder: Union[str, Path], mesh: Any = None) -> Dict[str, Any]:
    """Reads what save_checkpoint wrote, at any ep and number of ranks, into the model and the optimizer -> extra.

    The optimizer needs no state yet. Of tensors each rank reads its experts' rows alone. extra is this rank's own
    where there are as many ranks as there were, else rank 0's. Collective. A checkpoint of another model or optimizer
    is a ConfigError that names what differs, a file that is missing or damaged an IoError; on every rank, and the
    model is as it was unless the disk fails in the middle. mesh None: as of save_checkpoint.
    """
    folder, model = Path(folder).absolute(), unwrapped(model)
    mesh = mesh_for(model, mesh)
    require_one_folder(folder, mesh)
    found = together(mesh, lambda: _Checkpoint(folder))
    with found.files:
        fits = together(mesh, lambda: _Fit(found, model, optimizer, mesh))
        together(mesh, fits.read)
    same = len(found.ranks) == (1 if mesh is None else mesh.size)
    extra: Dict[str, Any] = found.ranks[mesh.rank if same and mesh is not None else 0]["extra"]
    return extra


class _Checkpoint:
    """What all ranks wrote of theirs, as one, and the tensors."""

    def __init__(self, folder: Path) -> None:
        self.folder = standing(folder)
        self.ranks = read_ranks(self.folder)
        self.groups: List[Dict[str, Any]] = self.ranks[0]["groups"]
        self.group_of: Dict[str, int] = {}
        self.small: Dict[str, Dict[str, Any]] = {}
        for rank in reversed(self.ranks):
            self.group_of.update(rank["group_of"])
            self.small.update(rank["small"])
        self.files = Folder(self.folder)
        self.states: Dict[str, Dict[str, Spec]] = {}  # by parameter and key
        for spec in self.files.specs.values():
            if spec.name.startswith("optimizer."):
                _, key, name = spec.name.split(".", 2)
                self.states.setdefault(name, {})[key] = spec


class _Fit:
    """A checkpoint beside a model and an optimizer that it fits."""

    def __init__(self, found: _Checkpoint, model: nn.Module, optimizer: Any, mesh: Any) -> None:
        self._found, self._optimizer, self._where = found, optimizer, placed(model)
        # Experts of a list that are on other ranks.
        self._elsewhere = tuple(f"{name}." for name, module, _ in shares(model) if isinstance(module, nn.ModuleList))
        self._weights = list(weights(model, self._where, mesh))
        self._parameters = Parameters(model, optimizer)
        self._check_weights()
        self._check_groups()

    def _refuse(self, why: str) -> ConfigError:
        return ConfigError(f"the checkpoint {self._found.folder} does not fit: {why}")

    def _check_weights(self) -> None:
        specs = self._found.files.specs
        for part in self._weights:
            name = part.spec.name[len("model."):]
            saved = specs.get(part.spec.name)
            if saved is None:
                raise self._refuse(f"it has no {name}, which the model has")
            if saved != part.spec:
                raise self._refuse(f"{name} is {saved.dtype} {list(saved.shape)} there, and {part.spec.dtype} "
                                   f"{list(part.spec.shape)} in the model")
        known = {part.spec.name for part in self._weights}
        for spec in specs.values():
            if spec.name.startswith("model.") and spec.name not in known and not self._is_elsewhere(spec.name[6:]):
                raise self._refuse(f"it has {spec.name[6:]}, which the model has not")

    def _is_elsewhere(self, name: str) -> bool:
        return name.startswith(self._elsewhere)

    def _check_groups(self) -> None:
        saved, here = len(self._found.groups), len(self._optimizer.param_groups)
        if saved != here:
            raise self._refuse(f"its optimizer has {saved} groups of parameters, this one {here}")
        for name, number in self._parameters.group_of.items():
            if self._found.group_of.get(name) != number:
                raise self._refuse(f"its optimizer has {name} in group {self._found.group_of.get(name)}, this one in "
                                   f"{number}")
        for name, number in self._found.group_of.items():
            if name not in self._parameters.group_of and not self._is_elsewhere(name):
                raise self._refuse(f"its optimizer has {name} in group {number}, this one does not have it")

    def read(self) -> None:
        for part in self._weights:
            self._found.files.read(part.spec.name, part.tensor, part.begin)
        for group, saved in zip(self._optimizer.param_groups, self._found.groups):
            group.update(saved)
        for name, parameter in self._parameters.by_name.items():
            state = dict(self._found.small.get(name, {}))
            for key, spec in self._found.states.get(name, {}).items():
                state[key] = self._state(name, spec, self._optimizer.state.get(parameter, {}).get(key))
            if state:
                standing_state = self._optimizer.state[parameter]
                standing_state.clear()
                standing_state.update(state)
            else:
                self._optimizer.state.pop(parameter, None)

    def _state(self, name: str, spec: Spec, standing_tensor: Any) -> torch.Tensor:
        """Read into the one that is there, where it has the shape."""
        where = self._where.get(name)
        shape, begin = spec.shape, 0
        if where is not None and where.stacked:
            shape, begin = (where.share.count, *shape[1:]), where.share.begin
        target, dtype = standing_tensor, dtype_of(spec)
        if not isinstance(target, torch.Tensor) or tuple(target.shape) != shape or target.dtype != dtype:
            target = torch.empty(shape, dtype=dtype)
        self._found.files.read(spec.name, target, begin)
        return target
