#!/usr/bin/env python3
"""Runs every test of the Python package; 77 where python3-numpy or python3-torch is missing.

MOELOOM_LIBRARY names the library, MOELOOM_PROGRAM the program. Arguments are names of tests: test_ops.Gmm.
"""

import importlib.util
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src" / "python")]


def main():
    missing = [name for name in ("numpy", "torch") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {' and '.join('python3-' + name for name in missing)} not installed")
        return 77
    loader = unittest.TestLoader()
    tests = loader.loadTestsFromNames(sys.argv[1:]) if sys.argv[1:] else loader.discover(str(HERE))
    result = unittest.TextTestRunner(verbosity=1).run(tests)
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
