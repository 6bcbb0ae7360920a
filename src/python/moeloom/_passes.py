"""What ranks have alike without telling each other: numbers of layers, and how often they went through experts."""

from __future__ import annotations

from typing import Any, Tuple


class Passes:
    """Through experts, since gradients were finished last: forwards that have a backward, and backwards."""

    def __init__(self) -> None:
        self.forwards = self.backwards = 0

    def taken(self) -> Tuple[int, int]:
        """How many; from here on counted anew."""
        found = self.forwards, self.backwards
        self.forwards = self.backwards = 0
        return found


def next_layer(mesh: Any) -> int:
    """The number of a layer that has none of its own."""
    return 0 if mesh is None else int(mesh.next_layer())
