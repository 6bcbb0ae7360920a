"""The program `moeloom`: where it is, how it is started, what its options and its exit codes say."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import IO, Any, Dict, List, Mapping, Sequence

from ._library import PACKAGE, above, library_path
from .errors import ConfigError, CorruptError, Error, IoError, MpiError

# src/run/record/exit_code.hpp
STOPPED = 75
_FAILED = 1
_OF_CODE = {_FAILED: ConfigError, 65: IoError, 69: MpiError, 70: CorruptError, 74: IoError, 76: MpiError}

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
    library = Path(library_path()).resolve().parent
    beside = [PACKAGE / "bin", *(prefix / "bin" for prefix in above(3)), library, library.parent / "bin"]
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


def start(words: Sequence[str], output: IO[bytes], ranks: int = 1) -> subprocess.Popen[bytes]:
    """On one rank the program itself, on several under mpirun, or what MOELOOM_MPIRUN says.

    In a session of its own: a Ctrl-C is for Python, which decides what becomes of the run.
    """
    launcher = shlex.split(os.environ.get("MOELOOM_MPIRUN", "mpirun")) if ranks > 1 else []
    command = [*launcher, *(["-n", str(ranks)] if launcher else []), program(), *words]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                env=environment(), start_new_session=True)
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
