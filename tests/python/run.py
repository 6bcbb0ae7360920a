#!/usr/bin/env python3
"""Runs every test of the Python package; 77 where python3-numpy or python3-torch is missing.

MOELOOM_LIBRARY names the library, MOELOOM_PROGRAM the program. Arguments are names of tests: test_ops.Gmm.
GTEST_TOTAL_SHARDS and GTEST_SHARD_INDEX: every so many-th test alone, as Google Test's programs understand them.
"""

import importlib.util
import os
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src" / "python")]


def each_of(suite):
    for test in suite:
        yield from each_of(test) if isinstance(test, unittest.TestSuite) else (test,)


def shard_of(tests):
    shards, index = (int(os.environ.get(f"GTEST_{name}", "0")) for name in ("TOTAL_SHARDS", "SHARD_INDEX"))
    return unittest.TestSuite(list(each_of(tests))[index::shards]) if shards > 1 else tests


def main():
    missing = [name for name in ("numpy", "torch") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {' and '.join('python3-' + name for name in missing)} not installed")
        return 77
    loader = unittest.TestLoader()
    tests = loader.loadTestsFromNames(sys.argv[1:]) if sys.argv[1:] else loader.discover(str(HERE))
    result = unittest.TextTestRunner(verbosity=1).run(shard_of(tests))
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
