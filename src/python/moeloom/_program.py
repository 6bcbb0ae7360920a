"""The program `moeloom`: where it is, how it is started, what its options and its exit codes say."""

from __future__ import annotations

import ctypes
import functools
import os
import queue
import shlex
import shutil
import signal
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, Callable, Dict, List, Mapping, Sequence

from ._library import PACKAGE, above, library_path
from .errors import ConfigError, CorruptError, Error, IoError, MpiError

# src/run/record/exit_code.hpp
STOPPED = 75
_FAILED = 1
_OF_CODE = {_FAILED: ConfigError, 65: IoError, 69: MpiError, 70: CorruptError, 74: IoError, 76: MpiError}

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>

# As launch/env.sh has them, for ranks on one machine.
_LAUNCHER = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none",
}
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Where this process is itself a rank, what its launcher told it is not for another job.
_OF_A_RANK = ("PMIX_", "PMI_", "OMPI_COMM_WORLD_", "OMPI_MCA_ess", "OMPI_MCA_orte_", "PRTE_MCA_prte_", "MPI_LOCAL")

# Options that are given again rather than joined by commas, which their values may hold.
_REPEATED = ("data", "stop", "template")


def program() -> str:
    """MOELOOM_PROGRAM, else beside the package or the library, else as the shell finds it."""
    asked = os.environ.get("MOELOOM_PROGRAM")
    if asked:
        return asked
    library = Path(library_path())
    beside = [PACKAGE / "bin", *(prefix / "bin" for prefix in above(3))]
    if library.name != str(library):  # else the loader finds it, wherever that is
        folder = library.resolve().parent
        beside += [folder, folder.parent / "bin"]
    found = [str(folder / "moeloom") for folder in beside if (folder / "moeloom").is_file()]
    path = found[0] if found else shutil.which("moeloom")
    if path is None:
        raise IoError("the program moeloom is not there; MOELOOM_PROGRAM=PATH names it, `cmake --install` and "
                      "`pip install` bring it")
    return path


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_value(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(map(_value, value))
    return str(value)


def arguments(options: Mapping[str, Any]) -> List[str]:
    """Options as a command line: `_` is `-`, None is left out."""
    words = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        several = isinstance(value, (list, tuple)) and flag in _REPEATED
        words += [f"--{flag}={_value(item)}" for item in (value if several else [value]) if item is not None]
    return words


def environment() -> Dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_RANK)}
    return {**_LAUNCHER, **(_AS_ROOT if os.geteuid() == 0 else {}), **own}


def _ending_with(parent: int) -> Callable[[], None]:
    """For a process between fork and exec: when the thread that started it is gone, it gets SIGUSR1.

    Not SIGTERM: mpirun ends its ranks at once on that, and hands SIGUSR1 on, behind which is a checkpoint.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # found here: behind a fork no more than a call is safe

    def ask() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(signal.SIGUSR1), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(STOPPED)
    return ask


@functools.lru_cache(maxsize=None)
def _starter(_process: int) -> queue.SimpleQueue[Callable[[], None]]:
    """Calls what it is given in a thread that lasts as long as this process: the kernel asks for the thread's end."""
    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def serve() -> None:
        while True:
            calls.get()()
    threading.Thread(target=serve, name="moeloom", daemon=True).start()
    return calls


def start(words: Sequence[str], output: IO[bytes], ranks: int = 1) -> subprocess.Popen[bytes]:
    """On one rank the program itself, on several under mpirun, or what MOELOOM_MPIRUN says.

    In a session of its own: a Ctrl-C is for Python, which decides what becomes of the run. It ends with this process.
    """
    launcher = shlex.split(os.environ.get("MOELOOM_MPIRUN", "mpirun")) if ranks > 1 else []
    command = [*launcher, *(["-n", str(ranks)] if launcher else []), program(), *words]
    started: Future[subprocess.Popen[bytes]] = Future()

    def call() -> None:
        try:
            started.set_result(subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment(),
                start_new_session=True, preexec_fn=_ending_with(os.getpid())))
        except BaseException as error:
            started.set_exception(error)
    _starter(os.getpid()).put(call)
    try:
        return started.result()
    except OSError as error:
        raise IoError(f"{command[0]} cannot be started: {error.strerror}") from error


def words_of(output: str) -> str:
    """What the program said was wrong, without what mpirun adds; the end of the output where it said nothing."""
    said = [line[len("[error] "):] for line in output.splitlines() if line.startswith("[error] ")]
    return "\n".join(dict.fromkeys(said)) or output[-2000:].strip() or "it said nothing"


def failure(code: int, output: str) -> Error:
    """The exception for an exit code that is not 0."""
    words = words_of(output)
    if code < 0:
        return Error(f"moeloom was ended by signal {-code}: {words}")
    return _OF_CODE.get(code, Error)(words)


def run(words: Sequence[str]) -> str:
    """Runs a command on one rank to its end -> what it prints."""
    try:
        done = subprocess.run([program(), *words], stdin=subprocess.DEVNULL, capture_output=True, env=environment(),
                              check=False)
    except OSError as error:
        raise IoError(f"{program()} cannot be started: {error.strerror}") from error
    out, said = (text.decode("utf8", "replace") for text in (done.stdout, done.stderr))
    if done.returncode:
        raise failure(done.returncode, said)
    return out
