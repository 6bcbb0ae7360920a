"""What Open MPI leaves behind on a node when its launcher is killed: segments of memory, the folder of the session.

A shell waits for the end of this process, however it comes, and removes them where the launcher has ended too, or does
later; else the launcher does. The program's ranks have src/app/watch/leftovers.cpp for it, of a child that was forked
before MPI began. Files that a rank does not map, as of another transport, are not found.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Iterable, List, Optional, Tuple

# Of this process and of the ranks that it has attached, which keep what they have mapped without its name. In /dev/shm,
# or where btl_vader_backing_directory says. Shared, and named HOST.UID.JOB.RANK: a user's sm_segment.npy is none.
_SEGMENT = re.compile(r"\S+ ...s \S+ \S+ \S+ +(/.*/(?:vader|sm)_segment\.[^/\s]+\.\d+\.[0-9a-f]+\.\d+)$")
# "ompi.HOST.UID/pid.N" of Open MPI 4, "prterun.HOST.N.UID", also of prted and prte, of 5: N is the launcher.
_SESSION = re.compile(r"(/.*/(?:ompi\.[^/]+/pid\.(\d+)|prte(?:run|d|)\.[^/]+\.(\d+)\.\d+))/")
_BEGAN = re.compile(r"\d+ \(.*\) \S (?:\S+ ){18}(\d+) ")

# Arguments: the launcher's number, when it began, its session, segments. A process that ended is a zombie as long as
# its parent does not ask; one of its number that began at another time is another. Of Open MPI 4 the folder above the
# session is that of all sessions, and stays where it has another; of 5 it is the user's. A launcher "prte" outlives the
# job, and so does its folder, which is that of other jobs too: until it ends, segments alone are waited for, as long as
# anybody has them mapped.
_WATCH = """
read -r _ && exit
launcher=$1 began=$2 session=$3
shift 3
lives() {
  read -r stat < "/proc/$launcher/stat" || { [ -e "/proc/$launcher" ]; return; }
  set -- ${stat##*) }
  [ "$1" != Z ] && [ "${20}" = "$began" ]
}
anything() {
  for left do
    [ -e "$left" ] && return
  done
  return 1
}
mapped() {
  cat /proc/[0-9]*/maps | grep -qF -- "$(printf '%s\\n' "$@")"
}
awaited=$session
case ${session##*/} in prte.*) awaited= ;; esac
waited=0
while lives; do
  anything "$awaited" "$@" || exit 0
  if [ -z "$awaited" ] && [ $waited -ge 20 ] && ! mapped "$@"; then
    rm -f -- "$@"
    exit 0
  fi
  if [ $waited -lt 20 ]; then sleep 0.1; else sleep 1; fi
  waited=$((waited + 1))
done
rm -f -- "$@"
rm -rf -- "$session"
case ${session##*/} in pid.*) rmdir -- "${session%/*}" ;; esac
"""


def _found(maps: Iterable[str]) -> Tuple[Optional[str], int, List[str]]:
    """The session's folder, its launcher, and segments, of what a process has mapped."""
    lines = list(maps)
    segments = {found.group(1) for found in map(_SEGMENT.match, lines) if found}
    session = next(filter(None, (_SESSION.search(line) for line in lines if "/ompi." in line or "/prte" in line)), None)
    if session is None:
        return None, 0, sorted(segments)
    return session.group(1), int(session.group(2) or session.group(3)), sorted(segments)


def _shell_for(launcher: int, session: str, segments: List[str], **options: Any) -> Optional[subprocess.Popen[bytes]]:
    """It begins to look when its input ends. None: the launcher is not seen."""
    try:
        began = _BEGAN.match(Path(f"/proc/{launcher}/stat").read_text(errors="replace"))
    except FileNotFoundError:
        return None
    if began is None:
        return None
    # In a session of its own, with nothing of this process's: neither does a signal to all of the job end it, nor does
    # who reads the job's output wait for it.
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, "moeloom-watch", str(launcher), began.group(1), session, *segments],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
        **options)


_shells: List[subprocess.Popen[bytes]] = []


@functools.lru_cache(maxsize=None)
def watch() -> None:
    """Once in a process, after MPI has started in it. Nothing where the launcher is another MPI's, or is not seen."""
    with contextlib.suppress(OSError, ValueError):  # without a shell or /proc nothing is lost but this
        maps = os.fsdecode(Path("/proc/self/maps").read_bytes())  # names are bytes, of whatever encoding
        session, launcher, segments = _found(maps.split("\n"))
        shell = None if session is None else _shell_for(launcher, session, segments)
        if shell is not None:
            _shells.append(shell)
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
