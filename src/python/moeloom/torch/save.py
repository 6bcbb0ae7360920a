"""A model on disk as Hugging Face's own save_pretrained writes it, by ranks that hold a share of its experts each.

    save_pretrained(model, "out", mesh)      # every rank; then: AutoModelForCausalLM.from_pretrained("out")
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path
from typing import Any, Iterator, List, Union

from torch import nn

from ..errors import ConfigError, IoError
from ._files import Shards, is_first, require_one_folder, sync, together, unwrapped, write_folder
from ._layouts import Group, Layout
from ._shares import mesh_for

# What a tokenizer or a processor consists of, beside the weights.
_COMPANIONS = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.tiktoken",
               "spiece.model", "sentencepiece*.model", "chat_template*", "additional_chat_templates", "normalizer.json",
               "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
_WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json")


def save_pretrained(model: nn.Module, folder: Union[str, Path], mesh: Any = None) -> None:
    """The whole model, with Hugging Face's names: its config, the tokenizer it came with, safetensors.

    Each rank writes its experts, and its part of the others; nothing is gathered. Collective; every rank sees the
    folder. The folder is complete when it returns; where it is not there before, it comes to be at one stroke, and
    where it is, its weights go before the new ones come. Of a module without config: weights alone. A model with
    adapters is refused: `model.save_pretrained(folder)` of PEFT on rank 0 writes them, where none is of an expert;
    `model.merge_and_unload()` makes a model to save here. A full disk, or any other error, is an error on every rank.
    mesh None: that of the model's experts, or one process.
    """
    model, folder = unwrapped(model), Path(folder).absolute()
    mesh = mesh_for(model, mesh)
    require_one_folder(folder, mesh)
    layout = together(mesh, lambda: _layout(model, folder))
    written = layout.written
    try:
        together(mesh, lambda: _begin(model, written) if is_first(mesh) else None)
        write_folder(written, layout.specs, mesh, lambda shards: _write(layout, shards, mesh))
        together(mesh, lambda: _commit(written, folder) if is_first(mesh) else None)
    finally:
        if is_first(mesh):
            shutil.rmtree(written, ignore_errors=True)


def _layout(model: nn.Module, folder: Path) -> Layout:
    if hasattr(model, "peft_config") or getattr(model, "_hf_peft_config_loaded", False):
        raise ConfigError("the model has adapters; model.save_pretrained(folder) on rank 0 writes them, where none is "
                          "of an expert, and model.merge_and_unload() gives a model that can be saved whole")
    if getattr(model, "hf_quantizer", None) is not None:
        raise ConfigError("the model is quantized; load it with dequantized weights to save it here")
    if folder.exists() and not folder.is_dir():
        raise IoError(f"{folder} is a file; expected a folder, or none")
    written = folder / ".saving" if folder.is_dir() else folder.with_name(f".{folder.name}.saving")
    return Layout(model, written)


def _begin(model: Any, written: Path) -> None:
    """Everything but the weights, as Hugging Face has it."""
    shutil.rmtree(written, ignore_errors=True)
    written.mkdir(parents=True)
    if hasattr(type(model), "save_pretrained"):
        with _quiet():
            type(model).save_pretrained(model, str(written), state_dict={})
        for pattern in _WEIGHTS:
            for file in written.glob(pattern):
                file.unlink()
    source = Path(str(getattr(getattr(model, "config", None), "_name_or_path", "") or "."))
    if source.is_dir() and source != Path("."):
        for file in (file for pattern in _COMPANIONS for file in source.glob(pattern)):
            copy = shutil.copytree if file.is_dir() else shutil.copy2
            if not (written / file.name).exists():
                copy(file, written / file.name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bar of no shards."""
    logging: Any = getattr(sys.modules.get("transformers.utils"), "logging", None)
    shown = logging is not None and logging.is_progress_bar_enabled()
    if shown:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _write(layout: Layout, shards: Shards, mesh: Any) -> None:
    size, rank = (1, 0) if mesh is None else (mesh.size, mesh.rank)
    writes_experts = mesh is None or mesh.dp_rank == 0
    for number, group in enumerate(layout.groups):
        if writes_experts if group.is_experts else number % size == rank:
            _write_group(layout, group, shards)


def _write_group(layout: Layout, group: Group, shards: Shards) -> None:
    """What conversion makes of it is gone before the next one's."""
    for name, tensor, begin in layout.tensors(group):
        shards.write(name, tensor, begin)


def _commit(written: Path, folder: Path) -> None:
    for path in written.rglob("*"):
        sync(path)
    sync(written)
    if not folder.is_dir():
        written.rename(folder)
        sync(folder.parent)
        return
    # Without an index, or with another's shards, it is no model: better than one of two parts.
    for pattern in _WEIGHTS[::-1]:
        for file in folder.glob(pattern):
            file.unlink()
    files: List[Path] = sorted(written.iterdir(), key=lambda file: file.name == _WEIGHTS[-1])
    for file in files:
        target = folder / file.name
        if file.is_dir() and target.is_dir():
            shutil.rmtree(target)
        file.replace(target)
    sync(folder)
