"""Words of the package, and the numbers that the library has for them."""

from __future__ import annotations

import operator
from typing import Union

from ._table import HALVES, INTERLEAVED, INTERLEAVED_TO_HALVES, SIGMOID, SOFTMAX, SOFTMAX_OF_CHOSEN
from .errors import ConfigError

Interleaved = Union[bool, str]

_SCORES = {"softmax": SOFTMAX, "sigmoid": SIGMOID, "softmax_of_chosen": SOFTMAX_OF_CHOSEN}
# What is added to the sum that weights are divided by, as DeepSeek's models have it.
EPSILON = {"softmax": 0.0, "sigmoid": 1e-20, "softmax_of_chosen": 0.0}


def text(word: str, name: str) -> bytes:
    """For the library; a TypeError where it is no text."""
    if not isinstance(word, str):
        raise TypeError(f"{name} is {word!r:.80}, a {type(word).__name__}; expected a str")
    return word.encode()


def number(value: float, name: str) -> float:
    """A TypeError where it is none: float("1") would take a text."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is {value!r:.80}, a {type(value).__name__}; expected a number")
    return float(value)


def whole(value: int, name: str) -> int:
    """NumPy's whole numbers too, which ctypes refuses."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r:.80}, a {type(value).__name__}; expected a whole number")
    return operator.index(value)


def score(word: str) -> int:
    text(word, "score")
    if word not in _SCORES:
        raise ConfigError(f'unknown score "{word}"; known: {", ".join(_SCORES)}')
    return _SCORES[word]


def pairs(interleaved: Interleaved) -> int:
    """Which numbers of a head turn together: False, True, or "to_halves"."""
    if interleaved == "to_halves":
        return INTERLEAVED_TO_HALVES
    if isinstance(interleaved, str):
        raise ConfigError(f'unknown order of pairs "{interleaved}"; known: False, True, "to_halves"')
    return INTERLEAVED if interleaved else HALVES
