"""How a job of several ranks ends: with all of them, or with a word of the rank that cannot go on.

A rank that an exception ends would leave the others waiting. So while a mesh of several ranks is open, what nobody
caught ends the job, after the rank's name and the traceback; and the end of the program is a call that all ranks make.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import socket
import sys
import threading
import time
import traceback
from typing import Any, Callable, List, Optional

from . import _leftovers
from ._library import library
from ._mpi import launched, others_run
from .errors import Error, InUseError, MpiError, OutOfMemoryError

# Seconds. Others that failed alike get their word out; a rank that tells the same as a lower one leaves it to that one;
# one that only came to its end leaves it to those that can say where they were.
_FOR_OTHERS, _FOR_THE_LOWEST, _AT_THE_END = 0.3, 1.0, 2.0
_KEYBOARD = 130  # as shells have it
_END = "the end of the program"
_MARK = "_moeloom_rank"
_DIFFER = "ranks do not make the same calls"
_RANKS = re.compile(r"ranks? ([\d,]+) (?:is|are) in ")
_PLAIN = threading.excepthook


def told_to_all(error: BaseException, rank: int, number: int) -> None:
    """Marks an error of a collective call that every rank of the group has, this one being `rank` there; that of a row
    or a column may come on the whole, where this is rank `number`."""
    alone = isinstance(error, (InUseError, OutOfMemoryError)) or not isinstance(error, (Error, TypeError))
    if not alone and not isinstance(error, MpiError):
        setattr(error, _MARK, rank)
    elif str(error).startswith(_DIFFER):
        named = (int(each) for ranks in _RANKS.findall(str(error)) for each in ranks.split(","))
        setattr(error, _MARK, number - min(named, default=0))


class Job:
    """Of this process: the meshes of several ranks that are open, and what is to be done at its end."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._open: List[Any] = []
        self._worlds: List[Any] = []
        self._owns_mpi = False
        self._hears = False
        self._name = ""
        self._before: Optional[Callable[..., Any]] = None
        self._before_of_threads: Optional[Callable[..., Any]] = None
        self._ends = threading.Lock()
        atexit.register(self._end)

    def owns_mpi(self) -> None:
        self._owns_mpi = True

    def hear_of_others(self) -> None:
        """A mesh is about to be made. Where mpi4py runs, an exception in it would leave the others waiting too."""
        if not self._open and others_run():
            self._hear()

    def _hear(self) -> None:
        if self._hears:
            return
        self._before, sys.excepthook = sys.excepthook, self._uncaught
        self._before_of_threads, threading.excepthook = threading.excepthook, self._uncaught_in_thread
        self._hears = True

    def enter(self, world: Any, of_job: Optional[int] = None) -> None:
        """A mesh opens on this group of all its ranks, this process being rank `of_job` of the job."""
        if world.size == 1:
            self._hear_no_more()
            return
        self._hear()
        part = "" if of_job in (None, world.rank) else f"rank {of_job} of the job, "
        self._name = f"rank {world.rank} of {world.size} ({part}{socket.gethostname()})"
        world.outlives_close = True
        self._open.append(world)
        self._worlds.append(world)

    def leave(self, world: Any) -> None:
        """It closes. Its group stays for the end of the program."""
        if world not in self._open:
            return
        self._open.remove(world)
        self._hear_no_more()

    def _hear_no_more(self) -> None:
        if self._open or not self._hears:
            return
        self._hears = False
        if sys.excepthook == self._uncaught:
            sys.excepthook = self._before or sys.__excepthook__
        if threading.excepthook == self._uncaught_in_thread:
            threading.excepthook = self._before_of_threads or threading.__excepthook__

    def name(self) -> str:
        """"rank 1 of 4 (host)", of the last mesh; before there is one of the job."""
        if self._name:
            return self._name
        rank, size = launched() or (0, 1)
        return f"rank {rank} of {size} ({socket.gethostname()})"

    def give_up(self, text: str) -> None:
        """The watch has seen a call that does not end."""
        self._abort(f"{self.name()} {text}; the job ends", 1)

    def _is_here(self) -> bool:
        """Neither in a child that was forked, nor after MPI's end."""
        return os.getpid() == self._process and self._hears and bool(library().ml_mpi_running())

    def _uncaught(self, kind: Any, error: BaseException, trace: Any) -> None:
        before = self._before or sys.__excepthook__
        if not self._is_here():
            before(kind, error, trace)
            return
        _leave_it_to_the_lowest(error)
        if before is sys.__excepthook__:
            text = "".join(traceback.format_exception(kind, error, trace)).rstrip()
            self._abort(f"{self.name()}: {text}", _code_of(error))
        else:
            _say(f"{self.name()}:")
            before(kind, error, trace)
            self._abort("", _code_of(error))

    def _uncaught_in_thread(self, what: Any) -> None:
        before = self._before_of_threads or threading.__excepthook__
        if not self._is_here() or what.exc_type is SystemExit:
            before(what)
            return
        _leave_it_to_the_lowest(what.exc_value)
        begin = f"{self.name()}, in {what.thread.name if what.thread else 'a thread'}:"
        if before is _PLAIN:
            text = "".join(traceback.format_exception(what.exc_type, what.exc_value, what.exc_traceback)).rstrip()
            self._abort(f"{begin} {text}", _code_of(what.exc_value))
        else:
            _say(begin)
            before(what)
            self._abort("", _code_of(what.exc_value))

    def _abort(self, text: str, code: int) -> None:
        self._ends.acquire()  # by one thread, for good
        if text:
            _say(text)
        _flush()
        time.sleep(_FOR_OTHERS)
        after = threading.Timer(5.0, os._exit, (code,))  # where MPI itself is what does not go on
        after.daemon = True
        after.start()
        if not library().ml_mpi_running():  # it was about to be: its launcher sees the code
            os._exit(code)
        library().ml_abort(code)

    def _end(self) -> None:
        """Waits until all ranks have come to their end, however long one goes on alone; those that are in another
        call learn of it."""
        if os.getpid() != self._process:
            return
        if library().ml_mpi_running():
            self._end_with_all()
        _leftovers.ended()

    def _end_with_all(self) -> None:
        _flush()
        try:
            for world in reversed(self._worlds):
                world.watch.close()
                library().ml_group_set_timeout(world.handle.value, 0.0)
                world.call(_END, library().ml_group_enter, world.handle.value, _END.encode(), b"")
        except Error as error:
            time.sleep(_AT_THE_END if hasattr(error, _MARK) else 0)
            _leave_it_to_the_lowest(error)
            told = str(error)
            self._abort(told if told.startswith("rank ") else f"{self.name()}: {told}", 1)
        if self._owns_mpi:
            library().ml_mpi_end()


@functools.lru_cache(maxsize=None)
def job() -> Job:
    return Job()


def _leave_it_to_the_lowest(error: Optional[BaseException]) -> None:
    if getattr(error, _MARK, 0) > 0:
        time.sleep(_FOR_THE_LOWEST)


def _code_of(error: Optional[BaseException]) -> int:
    return _KEYBOARD if isinstance(error, KeyboardInterrupt) else 1


def _say(text: str) -> None:
    """In one piece, that lines of ranks do not mix."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # there is nobody to tell


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
