"""The sidecar: the program trains in its own processes, and Python watches. No torch, no library, no MPI here."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, TextIO, Union

from . import _inputs, _program
from .errors import ConfigError, Error, IoError

_PAUSE = 0.05  # seconds between two looks at a run
_ARGUMENT = 64 * 1024  # bytes of a prompt in a word; Linux takes 128 KiB, but Open MPI makes one of all that are given
_START = 60.0  # seconds after which train() returns though the run has not begun to log


class Run:
    """A training beside this Python. Iterating gives what metrics.jsonl has, from its first line on, as it comes.

    Ctrl-C while wait() or an iteration waits is stop() of the run that is waited for; a second one ends it at once. In
    the loop's body it is what it is anywhere, a KeyboardInterrupt. Leaving an iteration early stops nothing.
    """

    def __init__(self, folder: _inputs.PathLike, words: Sequence[str], ranks: int, scratch: Path) -> None:
        self.folder = Path(folder)
        self._before = {name: self._stamp(name) for name in ("metrics.jsonl", "train.log")}
        self._output = scratch / _inputs.OUTPUT
        self._launched = ranks > 1
        self._asked = self._told = False  # to stop
        with open(self._output, "wb") as output:
            fcntl.flock(output, fcntl.LOCK_SH)
            self._process = _program.start(words, output, ranks)
        weakref.finalize(self, _discard, self._process, scratch)

    def _stamp(self, name: str) -> Any:
        try:
            stat = (self.folder / name).stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def _is_new(self, name: str) -> bool:
        """Whether this run wrote the file; an older run's may lie there."""
        stamp = self._stamp(name)
        return stamp is not None and stamp != self._before[name]

    def _raise_failure(self) -> None:
        code = self._process.poll()
        if code is not None:
            _inputs.forget_saved(self._output.parent)
        if code not in (None, 0, _program.STOPPED):
            raise _program.failure(code, self.output)

    def wait_for_start(self) -> None:
        """Until the program has accepted its options, or refused them."""
        end = time.monotonic() + _START
        while self.running and not self._is_new("train.log") and time.monotonic() < end:
            self._pause()
        self._raise_failure()

    @property
    def output(self) -> str:
        """What the program printed so far."""
        return self._output.read_text("utf8", "replace")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def stopped(self) -> bool:
        """Whether it ended early with a checkpoint; train(None, None, resume=run.folder) goes on."""
        return self._process.poll() == _program.STOPPED

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        self._wait_until(lambda: self._is_new("metrics.jsonl"))
        if self._is_new("metrics.jsonl"):
            with open(self.folder / "metrics.jsonl", encoding="utf8") as file:
                while line := self._next_line(file):
                    yield json.loads(line)
        self._raise_failure()

    def _next_line(self, file: TextIO) -> str:
        """Waits for a whole one; empty at the end."""
        begun = ""

        def is_whole() -> bool:
            nonlocal begun
            begun += file.readline()
            return begun.endswith("\n")
        self._wait_until(is_whole)
        return begun if begun.endswith("\n") else ""

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Until then or until the run has ended, and the condition has seen what it left."""
        with self._interruptible():
            running = True
            while not condition() and running:
                running = self.running
                if running:
                    self._pause()

    def wait(self) -> Run:
        """Returns at the end; raises what the program said was wrong."""
        self._wait_until(lambda: False)
        self._raise_failure()
        return self

    def stop(self) -> Run:
        """Ends the run behind its current step, with a checkpoint."""
        self._asked = True
        return self.wait()

    def _pause(self) -> None:
        self._tell()
        time.sleep(_PAUSE)

    def _tell(self) -> None:
        # Before the program has set out the signal would end it. mpirun hands it on to its ranks.
        if self._asked and not self._told and self._is_new("train.log"):
            self._told = True
            self._send(signal.SIGUSR1)

    def _send(self, number: int) -> None:
        if self.running:
            self._process.send_signal(number)

    def _interrupted(self, _number: int, _frame: Any) -> None:
        if self._asked:
            self._send(signal.SIGTERM if self._launched else signal.SIGKILL)
            raise KeyboardInterrupt
        self._asked = True
        self._tell()

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C is stop() inside, where it would have been a KeyboardInterrupt. Around no yield to the caller."""
        handler = self._interrupted  # one object: each look at a method makes another
        ours = (threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        if ours:
            signal.signal(signal.SIGINT, handler)
        try:
            yield
        finally:
            if ours and signal.getsignal(signal.SIGINT) is handler:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def checkpoint(self) -> Path:
        """The newest folder that Hugging Face's libraries open."""
        found = [path for path in self.folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
        if not found:
            raise IoError(f"{self.folder} holds no checkpoint yet; wait() for the end, or set save_every")
        return max(found, key=lambda path: int(path.name.rpartition("-")[2]))

    def to_transformers(self, **arguments: Any) -> Any:
        """The newest checkpoint as AutoModelForCausalLM.from_pretrained(..., **arguments) opens it."""
        from transformers import AutoModelForCausalLM
        return AutoModelForCausalLM.from_pretrained(str(self.checkpoint()), **arguments)

    def __repr__(self) -> str:
        code = self._process.poll()
        state = "running" if code is None else {0: "done", _program.STOPPED: "stopped"}.get(code, "failed")
        return f"<moeloom.Run {self.folder} {state}>"


def _discard(process: subprocess.Popen[bytes], scratch: Path) -> None:
    """What only a run that goes on needs: its output, and the model that it was given. Else the next one removes it."""
    if process.poll() is not None:
        shutil.rmtree(scratch, ignore_errors=True)


class _Traces:
    """What a run that is refused leaves: all that was not in its folder before, and the folder if nothing was."""

    def __init__(self, folder: Path, is_new: bool) -> None:
        self._folder, self._is_new = folder, is_new or not folder.exists()
        self._before = set() if self._is_new else set(folder.glob("records*.jsonl"))

    def remove(self) -> None:
        if self._is_new and (self._folder / "train.log").exists():
            return  # it had begun
        for path in set(self._folder.glob("records*.jsonl")) - self._before:
            path.unlink()
        if self._is_new:
            with contextlib.suppress(OSError):
                self._folder.rmdir()


def train(model: Any, data: Any, *, ranks: int = 1, ep: int = 1, run: Optional[_inputs.PathLike] = None,
          **options: Any) -> Run:
    """Starts `moeloom train` and returns once it has begun.

    model: a folder, a model of transformers, or None: a new one by options as layers=4, or the one that resume= names.
    data: a file, a list of files, or a list of records. run: the folder for metrics and checkpoints; None: a new one in
    runs/. options: those of `moeloom train --help`, `-` written `_`; tokenizer may be transformers' object.

    The run goes on though nobody holds the Run, but not without this Python: when that ends, is killed or its kernel is
    restarted, the run stops with a checkpoint. What shall outlive it is started in a shell: `nohup mpirun moeloom ...`.
    """
    resume = options.get("resume")
    folder = _inputs.run_folder(run, resume)
    traces = _Traces(folder, run is None and resume is None)
    scratch = _inputs.scratch_folder(folder)
    try:
        named: Dict[str, Any] = {
            "model": _inputs.saved(model, str(scratch / _inputs.MODEL)), "data": _inputs.data(data, folder),
            "tokenizer": _inputs.saved(options.pop("tokenizer", None), str(scratch / _inputs.TOKENIZER))}
        if resume is None or run is not None:
            named["run"] = folder
        if resume is None or ep != 1:
            named["ep"] = ep
        begun = Run(folder, ["train", *_program.arguments({**named, **options})], ranks, scratch)
    except BaseException:
        shutil.rmtree(scratch)
        traces.remove()
        raise
    try:
        begun.wait_for_start()
    except KeyboardInterrupt:
        begun.stop()
        raise
    except Error:
        shutil.rmtree(scratch, ignore_errors=True)
        traces.remove()
        raise
    return begun


def generate(model: Any, prompt: Union[str, Sequence[str]], **options: Any) -> Union[str, List[str]]:
    """What `moeloom generate` adds to the prompt; of a list of prompts the list of what it adds to each.

    model: a run's folder, a checkpoint, a folder of Hugging Face, or a model of transformers (with tokenizer=, whose
    files are saved beside it).
    """
    with tempfile.TemporaryDirectory(prefix="moeloom-") as scratch:
        tokenizer = options.pop("tokenizer", None)
        folder = _inputs.saved(model.folder if isinstance(model, Run) else model, scratch)
        if tokenizer is not None:
            _inputs.saved(tokenizer, folder)
        common = ["generate", *_program.arguments({"model": folder, **options})]
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        for text in prompts:
            if not isinstance(text, str):
                raise TypeError(f"prompt holds a {type(text).__name__}; expected a str, or a list of them")
        if isinstance(prompt, str) and len(prompt.encode("utf8")) <= _ARGUMENT:
            return _added(common, prompt)
        if all(_is_a_line(text) for text in prompts):
            added = _added_to_lines(common, prompts, Path(scratch) / "prompts.txt") if prompts else []
        else:
            added = [_added(common, text) for text in prompts]
        return added[0] if isinstance(prompt, str) else added


def _is_a_line(prompt: str) -> bool:
    """Whether a file that has a prompt a line can hold it."""
    return bool(prompt) and "\n" not in prompt and "\r" not in prompt


def _added_to_lines(common: Sequence[str], prompts: Sequence[str], file: Path) -> List[str]:
    file.write_text("".join(text + "\n" for text in prompts), "utf8")
    lines = _program.run([*common, f"--prompts={file}"]).split("\n")
    return [json.loads(line)["text"] for line in lines if line.startswith("{")]


def _added(common: Sequence[str], prompt: str) -> str:
    size = len(prompt.encode("utf8"))
    if size > _ARGUMENT:
        raise ConfigError(f"a prompt of {size} bytes has line ends; expected {_ARGUMENT} bytes at most, or a single "
                          "line of any length: shorten it, or replace its line ends")
    out = _program.run([*common, f"--prompt={prompt}"])
    return out.removeprefix(prompt).removesuffix("\n")


def plan(**options: Any) -> List[Dict[str, Any]]:
    """The rows of `moeloom plan --json`, the fastest first: a dict for each mesh and dispatcher."""
    with tempfile.TemporaryDirectory(prefix="moeloom-") as scratch:
        if "model" in options:
            options["model"] = _inputs.saved(options["model"], f"{scratch}/model")
        file = Path(scratch) / "plan.json"
        _program.run(["plan", *_program.arguments(options), f"--json={file}"])
        return list(json.loads(file.read_text("utf8"))["points"])
