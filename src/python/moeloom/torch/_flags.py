"""The environment's words, which mean what they mean to the program, and its decision on grouped products."""

from __future__ import annotations

import os
from ctypes import byref, c_int32, create_string_buffer
from typing import Dict, List, Mapping, NamedTuple, Optional

from .._library import library
from .._table import GmmFacts
from ..errors import ConfigError

_BOOLEANS = {**dict.fromkeys(("1", "true", "on", "yes"), "1"), **dict.fromkeys(("0", "false", "off", "no"), "0")}
_GMM = {**_BOOLEANS, "auto": "auto", "force": "force"}
_BOOLEAN_TEXTS = "1, true, on, yes, 0, false, off, no"
_GMM_TEXTS = "0, 1, auto, force"


class Flags(NamedTuple):
    """patch: whether there are kernels at all; fused_ops: norms, rope and MLPs; gmm: None where nothing is asked."""

    patch: bool
    fused_ops: bool
    gmm: Optional[str]
    given: Dict[str, str]

    def said(self, what: str) -> str:
        """MOELOOM_PATCH=0 of "PATCH", or its alias, whichever is set."""
        names = (f"MOELOOM_{what}", f"TWINKLE_NPU_{what}")
        return next(f"{name}={self.given[name]}" for name in names if name in self.given)


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.given: Dict[str, str] = {}
        self.violations: List[str] = []

    def _read(self, name: str, words: Mapping[str, str], texts: str) -> Optional[str]:
        text = self._environment.get(name, "")
        word = text.strip().lower()
        if not word:
            return None
        if word not in words:
            self.violations.append(f'{name} = "{text}" is not valid; valid: {texts}')
            return None
        self.given[name] = word
        return words[word]

    def agreed(self, name: str, alias: str, words: Mapping[str, str] = _BOOLEANS,
               texts: str = _BOOLEAN_TEXTS) -> Optional[str]:
        own, other = self._read(name, words, texts), self._read(alias, _BOOLEANS, _BOOLEAN_TEXTS)
        if own is not None and other is not None and own != other:
            self.violations.append(f"{name} and its alias {alias} disagree ({name}={self.given[name]}, "
                                   f"{alias}={self.given[alias]}); unset one of them")
        return other if own is None else own


def flags(environment: Optional[Mapping[str, str]] = None) -> Flags:
    """ConfigError with every value that is not valid."""
    reader = _Reader(os.environ if environment is None else environment)
    patch = reader.agreed("MOELOOM_PATCH", "TWINKLE_NPU_PATCH")
    fused_ops = reader.agreed("MOELOOM_FUSED_OPS", "TWINKLE_NPU_FUSED_OPS")
    gmm = reader.agreed("MOELOOM_GMM_PATCH", "TWINKLE_NPU_GMM_PATCH", _GMM, _GMM_TEXTS)
    if reader.violations:
        raise ConfigError("\n".join(reader.violations))
    return Flags(patch != "0", fused_ops != "0", gmm, reader.given)


class Decision(NamedTuple):
    applies: bool
    reason: str


def decide_gmm(request: str, experts: int, hidden: int, intermediate: int, ep: int = 0) -> Decision:
    """Of a layer whose e experts lie in stacks of this rank; ep 0: no mesh is known."""
    facts = GmmFacts(ep=ep, experts=experts, hidden=hidden, intermediate=intermediate)
    applies, reason = c_int32(), create_string_buffer(1024)
    library().ml_decide_gmm(request.encode(), byref(facts), byref(applies), reason, len(reason))
    return Decision(bool(applies.value), reason.value.decode("utf8", "replace"))
