"""What a user hands to the sidecar, as the program reads it: folders, files, records."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Mapping, Optional, Union

from .errors import ConfigError, IoError

PathLike = Union[str, Path]


def saved(thing: Any, folder: str) -> Any:
    """A path as it is; a model or a tokenizer of transformers is saved to the folder first."""
    if thing is None or isinstance(thing, (str, os.PathLike)):
        return thing
    if not hasattr(thing, "save_pretrained"):
        raise TypeError(f"expected a folder, or a model of transformers; found a {type(thing).__name__}")
    thing.save_pretrained(folder)
    return folder


def data(data: Any, folder: Path) -> Any:
    """Files as they are; records go to a file of the run's folder, where a resumed run finds them."""
    if data is None or isinstance(data, (str, os.PathLike)):
        return data
    if isinstance(data, Mapping):
        raise TypeError(f"data is a {type(data).__name__}; expected a file, a list of files, or a list of records: "
                        "[{'text': ...}, ...]")
    items = list(data)
    if not items:
        raise ConfigError("data is empty; expected files or records")
    if all(isinstance(item, (str, os.PathLike)) for item in items):
        return items
    wrong = next((item for item in items if not isinstance(item, Mapping)), None)
    if wrong is not None:
        raise TypeError(f"data holds a {type(wrong).__name__}; expected files, or records as {{'text': ...}} or "
                        "{'messages': [...]}")
    lines = "".join(json.dumps(dict(item), ensure_ascii=False) + "\n" for item in items)
    folder.mkdir(parents=True, exist_ok=True)
    return _records(lines.encode("utf8"), folder)


def _records(lines: bytes, folder: Path) -> Path:
    """records.jsonl, or with a number where a run has others there: they are still its own if this one is refused."""
    for tail in ("", *(f"-{number}" for number in range(2, 1000))):
        path = folder / f"records{tail}.jsonl"
        if not path.exists():
            path.write_bytes(lines)
            return path
        if path.read_bytes() == lines:
            return path
    raise IoError(f"{folder} has records.jsonl and 998 more; name another folder by run=")


_SCRATCH = ".sidecar-"
MODEL, TOKENIZER = "model", "tokenizer"
OUTPUT = "output.txt"  # in a scratch folder; locked as long as the run has it open, in whatever process


def scratch_folder(folder: Path) -> Path:
    """A hidden folder in the run's, for a model that is handed over and for what the program prints.

    Removes those of runs that ended when no Python watched.
    """
    for old in folder.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError), open(old / OUTPUT, "rb") as output:
            fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=folder.resolve()))
    except OSError as error:
        raise IoError(f"{folder} cannot hold a run: {error.strerror}; name another folder by run=") from error


def forget_saved(scratch: Path) -> None:
    """What an ended run needs no longer, and may be large; what it printed stays as long as its Run."""
    for name in (MODEL, TOKENIZER):
        shutil.rmtree(scratch / name, ignore_errors=True)


def _new_folder() -> Path:
    """runs/DATE-TIME, with a number behind it where two begin in one second."""
    runs = Path("runs")
    runs.mkdir(exist_ok=True)
    name = time.strftime("%Y%m%d-%H%M%S")
    for tail in ("", *(f"-{number}" for number in range(2, 1000))):
        try:
            (runs / (name + tail)).mkdir()
            return runs / (name + tail)
        except FileExistsError:
            continue
    raise IoError(f"runs/{name} and 999 more are there already; name the folder by run=")


def run_folder(run: Optional[PathLike], resume: Optional[PathLike]) -> Path:
    """Where the run that is asked for lies: `run`, else that of what it resumes, else a new one."""
    if run is not None:
        return Path(run)
    if resume is None:
        return _new_folder()
    folder = Path(resume)
    return folder.parent if folder.name.startswith("checkpoint-") else folder
