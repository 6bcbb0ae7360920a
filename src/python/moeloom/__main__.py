"""python3 -m moeloom info: what there is. python3 -m moeloom check: one step against torch's own."""

from __future__ import annotations

import sys
from typing import List

from . import info
from .errors import Error

_TOLERANCE = 1e-5  # of float32: sums of some hundred products, each rounded once


def _info() -> int:
    for name, value in info().items():
        print(f"{name:12} {', '.join(value) if isinstance(value, list) else value}")
    return 0


def _check() -> int:
    try:
        from ._check import differences
    except ImportError as error:
        print(f"check compares with torch, which is not there: {error}", file=sys.stderr)
        return 1
    wrong = 0
    for label, difference in differences():
        right = difference <= _TOLERANCE
        wrong += not right
        print(f"{label:28} {difference:.1e} {'' if right else 'WRONG'}".rstrip())
    print("right" if not wrong else f"{wrong} tensors differ from torch's")
    return int(wrong > 0)


def main(arguments: List[str]) -> int:
    commands = {"info": _info, "check": _check}
    if len(arguments) != 1 or arguments[0] not in commands:
        print(f"usage: python3 -m moeloom {'|'.join(commands)}", file=sys.stderr)
        return 2
    try:
        return commands[arguments[0]]()
    except Error as error:
        print(f"moeloom: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
