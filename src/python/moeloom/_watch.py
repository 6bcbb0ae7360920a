"""Watches a call of several ranks that goes on and on: one of them was stopped after all had come to it.

A rank that does not come is the library's to find. Behind its door it waits for rows without a limit.
"""

from __future__ import annotations

import math
import os
import threading
from typing import Callable, Optional, Tuple

_MARGIN = 0.1  # of the limit, and at least a second: the library's own error comes first
_POLLS = 20  # in a limit


class Watch:
    """now: the collective call that the process is in, a new tuple each time, and where it is not known that the other
    ranks came to it, what is known of them; None: in none.

    gives_up(text) is called once, by another thread, where one lasts longer than `seconds` and a margin; 0: never.
    """

    def __init__(self, seconds: float, gives_up: Callable[[str], None]) -> None:
        self.now: Optional[Tuple[str, ...]] = None
        self._seconds, self._gives_up = seconds, gives_up
        self._ends = threading.Event()
        if 0 < seconds < math.inf:
            threading.Thread(target=self._run, name="moeloom-watch", daemon=True).start()

    def _run(self) -> None:
        process = os.getpid()
        period = min(max(self._seconds / _POLLS, 0.05), 5.0)
        limit = self._seconds + max(1.0, _MARGIN * self._seconds)
        seen, waited = None, 0.0
        # What counts are polls, not a clock: while all of this process was stopped, nothing was waited for.
        while not self._ends.wait(period) and os.getpid() == process:
            now = self.now
            waited = waited + period if now is not None and now is seen else 0.0
            seen = now
            if now is not None and waited > limit:
                of_others = now[1] if len(now) > 1 else "which came to it and did not go on"
                self._gives_up(f"has waited {waited:.3g} s in {now[0]} for other ranks, {of_others}")
                return

    def close(self) -> None:
        self._ends.set()
