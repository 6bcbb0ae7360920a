"""What a forward leaves for its backward, kept by a tensor that autograd saves.

Autograd decides how long saved tensors live, and checkpointing makes new ones in their place: it throws away what the
first forward saved, and gives the backward what the second one saves. So the library's trip hangs on a tensor of one
number whose memory it is: the trip goes back to its pool when autograd lets go of the tensor, and a backward under
checkpointing gets the trip of the second forward.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from typing import Optional

import torch

from .._library import Handle


class _Ticket(ctypes.c_int64 * 1):  # type: ignore[misc]
    """The memory of the tensor, which lives as long as any tensor of it."""

    trip: Handle


class Tickets:
    """Trips by number, of tensors that are still there."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._tickets: weakref.WeakValueDictionary[int, _Ticket] = weakref.WeakValueDictionary()

    def issue(self, trip: Handle) -> torch.Tensor:
        ticket = _Ticket(next(self._numbers))
        ticket.trip = trip
        self._tickets[ticket[0]] = ticket
        return torch.frombuffer(ticket, dtype=torch.int64)

    def trip_of(self, tensor: torch.Tensor) -> Optional[Handle]:
        """None where a hook copied the tensor, and its memory went."""
        ticket = self._tickets.get(int(tensor))
        return None if ticket is None else ticket.trip
