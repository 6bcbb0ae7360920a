"""Models of transformers, 4 or 5, whose experts are shared among ranks: from a folder, or one that is in memory.

    model = moeloom.loading.from_pretrained(folder, mesh)     # each rank reads its experts alone
    model = moeloom.loading.shard(model, mesh)                # each rank keeps its experts alone
"""

from __future__ import annotations

import contextlib
import os
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from torch import nn

from ._own_slices import keep_own
from .errors import ConfigError, IoError
from .torch import _slices, patches
from .torch._files import together
from .torch._guards import Registered, guard, refuse_adapters
from .torch._plans import has_experts
from .torch._shares import mesh_for, shard_list, shard_stacks, shares
from .torch.kernels import apply_kernel

__all__ = ["from_pretrained", "shard"]

State = Dict[str, Any]


def from_pretrained(folder: Union[str, Path], mesh: Any = None, dtype: Any = None, **arguments: Any) -> Any:
    """AutoModelForCausalLM.from_pretrained, of whose experts this rank's slices alone are read and held.

    dtype and arguments are Hugging Face's. Collective. A model without experts is whole on every rank. Other files
    than safetensors, and models whose code lies in the folder, are read whole and then shared, with a warning. Raises
    IoError where there is no model, ConfigError where it is quantized or has fewer experts than ranks share them.
    """
    folder = Path(folder).absolute()
    if dtype is not None:
        arguments["dtype"] = dtype
    whole = mesh is None or mesh.ep == 1
    found = together(mesh, lambda: _whole(folder, arguments) if whole else _read(folder, mesh, arguments))
    model, *loading_info = found if isinstance(found, tuple) else (found,)
    model = shard(model, mesh)
    return (model, *loading_info) if loading_info else model


def shard(model: Any, mesh: Any) -> Any:
    """Of a model that every rank has, this rank keeps its experts, computed by moeloom -> the model. Collective.

    Parameters stay the objects that they were. A model without experts stays as it is. mesh None: that on which its
    experts are shared already, or one process.
    """
    holders = list(_holders(model))
    if not holders:
        unknown = {type(module).__name__ for module in model.modules() if has_experts(module, type(module).__name__)}
        if unknown and mesh is not None and mesh.ep > 1:
            warnings.warn(f"experts of {', '.join(sorted(unknown))} stay whole on every rank: it is not a class that "
                          "the kernel fused_moe knows", stacklevel=2)
        return model
    _require_enough(holders, mesh)
    mesh = mesh_for(model, mesh)

    def compute() -> None:
        try:
            apply_kernel("fused_moe", model=model, mesh=mesh)
        except ConfigError as error:
            if not hasattr(model, "set_experts_implementation"):
                why = str(error).rpartition("cannot run here: ")[2]
                raise ConfigError(f"experts of {type(model).__name__} cannot be shared: {why}") from error
            _by_registry(model, mesh, holders)
    together(mesh, compute)
    if mesh is not None and mesh.ep > 1:
        guard(model)
    return model


def _by_registry(model: Any, mesh: Any, holders: List[Tuple[nn.Module, int]]) -> None:
    """Experts of transformers 5 that the table of patches does not know."""
    from . import hf
    if mesh is not None and mesh.ep > 1:
        refuse_adapters(name for name, module in model.named_modules() if any(module is each for each, _ in holders))
    hf.register(mesh)
    if mesh is not None:
        _share(holders, mesh)
    for holder, _ in holders if mesh is not None and mesh.ep > 1 else ():
        Registered(holder).install()
    model.set_experts_implementation("moeloom")


# ---- which modules hold experts, also of a model without memory ----

def _holders(model: nn.Module) -> Iterator[Tuple[nn.Module, int]]:
    """Lists and modules with stacks, and how many experts each has, over all ranks."""
    family, _ = patches.family_of(model)
    rows = {} if family is None else family.experts
    marked = {id(module): share.num_experts for _, module, share in shares(model)}
    for module in model.modules():
        for holder in _of_row(module, rows.get(type(module).__name__)):
            if isinstance(holder, nn.ModuleList):
                yield holder, len(holder)
            else:
                stack = next((p for p in holder.parameters(recurse=False) if p.dim() == 3), None)
                if stack is not None:
                    yield holder, marked.get(id(holder), stack.size(0))


def _of_row(module: nn.Module, row: Any) -> List[nn.Module]:
    experts = module._modules.get("experts")
    if isinstance(row, (patches.Listed, patches.ListedMoe)):
        return [experts] if isinstance(experts, nn.ModuleList) else []
    if isinstance(row, patches.Granite) and hasattr(module, "input_linear"):
        projections: List[Any] = [module.input_linear, module.output_linear]
        return projections
    if isinstance(row, patches.Llama4):
        return [] if experts is None else [experts]
    if isinstance(row, (patches.Stacked, patches.GptOss)) or hasattr(type(module), "_apply_gate"):
        return [module]  # that of transformers 5, of any family
    return []


def _require_enough(holders: List[Tuple[nn.Module, int]], mesh: Any) -> None:
    fewest = min(num_experts for _, num_experts in holders)
    if mesh is not None and fewest < mesh.ep:
        raise ConfigError(f"ep = {mesh.ep} ranks cannot share num_experts = {fewest}; choose ep up to {fewest}")


def _share(holders: List[Tuple[nn.Module, int]], mesh: Any) -> None:
    if holders:
        _require_enough(holders, mesh)
    for layer, (holder, num_experts) in enumerate(holders):
        if isinstance(holder, nn.ModuleList):
            shard_list(holder, mesh, layer)
        else:
            shard_stacks(holder, num_experts, mesh, layer)


# ---- reading ----

def _config(folder: Path, arguments: State) -> Any:
    from transformers import AutoConfig
    if not (folder / "config.json").is_file():
        raise IoError(f"{folder} has no config.json; expected a folder that save_pretrained wrote, or a download")
    if arguments.get("config") is not None:
        return arguments["config"]
    return AutoConfig.from_pretrained(str(folder), trust_remote_code=arguments.get("trust_remote_code", False))


def _whole(folder: Path, arguments: State) -> Any:
    from transformers import AutoModelForCausalLM
    _config(folder, arguments)
    return AutoModelForCausalLM.from_pretrained(str(folder), **arguments)


def _read(folder: Path, mesh: Any, arguments: State) -> Any:
    config = _config(folder, arguments)
    if getattr(config, "quantization_config", None) is not None:
        raise ConfigError(f"{folder} is quantized, and slices of it are not read; load it with "
                          "transformers, dequantized, and give it to shard(model, mesh)")
    known = _class_of(config)
    state = _slices.slices_of(folder) if known is not None else None
    if state is None:
        why = "it has no safetensors" if known is not None else f"transformers has no class for {type(config).__name__}"
        size = sum(file.stat().st_size for kind in ("*.safetensors", "*.bin") for file in folder.glob(kind)) / 1e9
        warnings.warn(f"{folder} is read whole on every rank before its experts are shared, as {why}: each rank holds "
                      f"{size:.1f} GB for a moment", stacklevel=4)
        return _whole(folder, arguments)
    given = {name: value for name, value in arguments.items() if name not in ("config", "trust_remote_code")}
    with _one_by_one():
        model = _sharing(known, state, mesh).from_pretrained(None, config=config, state_dict=state, **given)
    loaded = model[0] if isinstance(model, tuple) else model
    loaded.__class__ = known
    loaded.config._name_or_path = str(folder)
    if (folder / "generation_config.json").is_file() and loaded.can_generate():
        from transformers import GenerationConfig
        loaded.generation_config = GenerationConfig.from_pretrained(str(folder))
    return model


def _class_of(config: Any) -> Optional[Any]:
    from transformers import AutoModelForCausalLM
    found = AutoModelForCausalLM._model_mapping.get(type(config), None)
    return found[0] if isinstance(found, (list, tuple)) else found


@contextlib.contextmanager
def _one_by_one() -> Iterator[None]:
    """transformers 5 reads tensors ahead in threads, and then has all lists of experts twice; this word stops it."""
    word = "HF_DEACTIVATE_ASYNC_LOAD"
    before = os.environ.get(word)
    os.environ[word] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[word]
        else:
            os.environ[word] = before


def _sharing(known: Any, state: State, mesh: Any) -> Any:
    """The class, which shares its experts as soon as it is made, without memory yet, and then knows which slices of
    the files are this rank's."""
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        known.__init__(self, *arguments, **named)
        if not all(parameter.is_meta for parameter in self.parameters()):
            warnings.warn("transformers made the model in memory, so that its experts are there whole for a moment",
                          stacklevel=2)
        _share(list(_holders(self)), mesh)
        keep_own(self, state)
    return type(known.__name__, (known,), {"__init__": __init__, "__module__": known.__module__,
                                           "__qualname__": known.__qualname__, "__doc__": known.__doc__})
