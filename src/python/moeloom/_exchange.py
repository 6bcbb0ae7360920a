"""What the environment asks of exchanges between ranks, in the words of the program's options.

MOELOOM_DISPATCHER (--dispatcher): auto, alltoall, shared, hierarchical. MOELOOM_OVERLAP (--overlap): auto, off, or a
number of chunks. MOELOOM_PRETEND_NODES, for tests: as if ranks were on so many nodes. The same on all ranks.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from ._table import CHUNKS_AUTO
from .errors import ConfigError

_DISPATCHERS = ("auto", "alltoall", "shared", "hierarchical")


class Exchange(NamedTuple):
    dispatcher: Optional[str]
    chunks: int
    pretended_nodes: int


NOTHING_ASKED = Exchange(None, CHUNKS_AUTO, 0)


def _whole(name: str, word: str, valid: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise ConfigError(f"{name} = {word}; valid: {valid}")
    return int(word)


def asked_exchange() -> Exchange:
    """ConfigError for a word that is none of these."""
    dispatcher = os.environ.get("MOELOOM_DISPATCHER") or "auto"
    if dispatcher not in _DISPATCHERS:
        raise ConfigError(f"MOELOOM_DISPATCHER = {dispatcher}; valid: {', '.join(_DISPATCHERS)}")
    overlap = os.environ.get("MOELOOM_OVERLAP") or "auto"
    chunks = {"auto": CHUNKS_AUTO, "off": 0}.get(overlap)
    if chunks is None:
        chunks = _whole("MOELOOM_OVERLAP", overlap, "auto, off, or a number of chunks from 1")
    nodes = _whole("MOELOOM_PRETEND_NODES", os.environ.get("MOELOOM_PRETEND_NODES") or "1", "a number from 1")
    return Exchange(None if dispatcher == "auto" else dispatcher, chunks, nodes if nodes > 1 else 0)
