"""What can go wrong, each also the built-in exception that callers catch already."""

from __future__ import annotations


class Error(Exception):
    """Everything that moeloom raises, but for a TypeError of a wrong type."""


class ShapeError(Error, ValueError):
    """Sizes, strides or numbers that do not fit each other."""


class ConfigError(Error, ValueError):
    """A choice that is unknown, or not possible here."""


class IoError(Error, OSError):
    """A file, a folder or a program that is missing, damaged or refused."""


class MpiError(Error, RuntimeError):
    """MPI does not run, or a call of it failed. The job has to end."""


class SpentError(Error, RuntimeError):
    """A second backward of one forward, or a handle that is closed."""


class InUseError(Error, RuntimeError):
    """A handle that another thread uses."""


class CorruptError(Error, RuntimeError):
    """Numbers that changed in memory, or that differ between ranks."""


class OutOfMemoryError(Error, MemoryError):
    """No memory for what was asked."""


# By ml_status of moeloom/c/moeloom.h.
OF_STATUS = {
    1: ShapeError,
    2: TypeError,
    3: ConfigError,
    4: IoError,
    5: IoError,
    6: MpiError,
    7: CorruptError,
    8: OutOfMemoryError,
    9: InUseError,
    10: SpentError,
}
