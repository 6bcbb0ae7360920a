#!/usr/bin/env python3
"""What share of a patched training step is the package's own Python, where a step has 256 tokens only?

    OMP_NUM_THREADS=1 PYTHONPATH=src/python MOELOOM_LIBRARY=build/libmoeloom_c.so.1 \\
        python3 bench/python/own_share.py --case d256

The step of torch_step.py --patched with one sequence. Own is what passes in the package's functions - those that
autograd calls, patches, the optimizer - outside of the library's: arrays for it, memory for results, hooks. A clock
stands at the door of each and around each of the library's functions; what the clocks cost counts as own. What a
patched block does in torch by itself, as its routing, is no part of it. Medians: total_ms of own time a step, and
percent, its share.
"""
import argparse
import functools
import json
import statistics
import sys
import time
from pathlib import Path

import torch

from moeloom import _table
from moeloom._library import library
from moeloom.torch import AdamW, _elementwise, _experts_function, _lists, functions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "train"))
import torch_step  # noqa: E402


class Clock:
    """Seconds in the package, and of them those in the library."""

    def __init__(self):
        self.inside, self.calls, self.in_package, self.in_library = False, 0, 0.0, 0.0

    def at_door(self, function):
        """Of what is called from outside; one that the package calls itself is inside already."""
        @functools.wraps(function)
        def timed(*arguments, **named):
            if self.inside:
                return function(*arguments, **named)
            self.inside, begin = True, time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.in_package += time.perf_counter() - begin
                self.inside = False
        return timed

    def around(self, function):
        """Of one of the library's."""
        def timed(*arguments):
            begin = time.perf_counter()
            answer = function(*arguments)
            if self.inside:
                self.calls += 1
                self.in_library += time.perf_counter() - begin
            return answer
        return timed


def set_clocks(clock):
    doors = [(_lists.ListedExperts, ("__call__", "stack")), (_lists._Stack, ("after_backward",)),
             (_elementwise.Norm, ("__call__",)), (AdamW, ("step",))]
    for owner, names in doors:
        for name in names:
            setattr(owner, name, clock.at_door(getattr(owner, name)))
    for function in (functions.RMSNormFunction, functions.RopeFunction, functions.SwigluFunction, _lists._Before,
                     _experts_function._Call):
        for name in ("forward", "backward"):
            setattr(function, name, staticmethod(clock.at_door(getattr(function, name))))
    for name, *_ in _table.functions():
        setattr(library(), name, clock.around(getattr(library(), name)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=torch_step.CASES, default="d256")
    parser.add_argument("--steps", type=int, default=21, help="measured steps (default 21)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = torch_step.make_model(torch_step.CASES[options.case])
    torch_step.require_equal(model)
    clock = Clock()
    set_clocks(clock)
    model = torch_step.patch(model)
    optimizer = torch_step.moeloom_adamw(model)
    own, shares = [], []
    for _ in range(options.steps + 2):
        clock.calls, clock.in_package, clock.in_library = 0, 0.0, 0.0
        _, seconds, _ = torch_step.timed_step(model, optimizer, torch_step.random_tokens(1))
        own.append(clock.in_package - clock.in_library)
        shares.append(own[-1] / seconds)
    if not clock.calls:
        sys.exit("the clocks saw no call")
    print(json.dumps({"case": options.case, "torch": torch.__version__, "total_ms": 1e3 * statistics.median(own[2:]),
                      "percent": 100 * statistics.median(shares[2:]), "calls": clock.calls}))


if __name__ == "__main__":
    main()
