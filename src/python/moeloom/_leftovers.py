"""What Open MPI leaves behind on a node when its launcher is killed: segments in /dev/shm, the folder of the session.

A shell waits for the end of this process, however it comes, and removes them where the launcher has ended too; else the
launcher does. The program's ranks have src/app/watch/leftovers.cpp for it, of a child that was forked before MPI began.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
from pathlib import Path
from typing import List, Optional, Tuple

# Of this process and of the ranks that it has attached, which keep what they have mapped without its name.
_SEGMENT = re.compile(r"/dev/shm/(?:vader|sm)_segment\.\S+$")
# "pid.N" of Open MPI 4, "prterun.HOST.N.UID" and "prted.HOST.N.UID" of 5: N is the launcher.
_SESSION = re.compile(r"(/.*/(?:pid\.(\d+)|prte(?:run|d|)\.[^/]+\.(\d+)\.\d+))/")

# Arguments: the launcher's number, its session, segments. A process that ended is a zombie as long as its parent does
# not ask, and has no exe then. The folder above is that of all sessions: it stays where it has another.
_WATCH = """
read -r _ && exit
launcher=$1 session=$2
shift 2
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  if [ ! -e "/proc/$launcher/exe" ]; then
    rm -f -- "$@"
    rm -rf -- "$session"
    rmdir -- "${session%/*}"
    exit
  fi
  sleep 0.1
done
"""


def _found() -> Tuple[Optional[str], int, List[str]]:
    """The session's folder, its launcher, and segments, of what this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    segments = {found.group() for found in map(_SEGMENT.search, lines) if found}
    session = next(filter(None, (_SESSION.search(line) for line in lines if "/ompi." in line or "/prte" in line)), None)
    if session is None:
        return None, 0, sorted(segments)
    return session.group(1), int(session.group(2) or session.group(3)), sorted(segments)


_shells: List[subprocess.Popen[bytes]] = []


@functools.lru_cache(maxsize=None)
def watch() -> None:
    """Once in a process, after MPI has started in it. Nothing where the launcher is another MPI's, or is not seen."""
    with contextlib.suppress(OSError):  # without a shell or /proc nothing is lost but this
        session, launcher, segments = _found()
        if session is None or not Path(f"/proc/{launcher}").exists():
            return
        # In a session of its own, with nothing of this process's: neither does a signal to all of the job end it, nor
        # does who reads the job's output wait for it.
        _shells.append(subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "moeloom-watch", str(launcher), session, *segments], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/"))
        os.register_at_fork(after_in_child=_let_go)


def _let_go() -> None:
    """Its input ends with this process: not with a child that was forked."""
    for shell in _shells:
        shell.stdin.close()  # type: ignore[union-attr]
        shell.returncode = 0  # it is another's child
    _shells.clear()


def ended() -> None:
    """MPI has ended, or is about to, and removes all itself."""
    for shell in _shells:
        with contextlib.suppress(subprocess.TimeoutExpired):
            shell.communicate(b"\n", timeout=1)
    _shells.clear()
