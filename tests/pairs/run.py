#!/usr/bin/env python3
"""Trains two steps with each row of a pairwise table of options, and again without those that change no bit.

    run.py MOELOOM [--rows FROM:TO] [--seed N] [--work DIR]

Every row runs on 4 ranks: first whole, then without the options of which `options.py` says that they are another way to
the same training. Losses, gradient norms and weights must have the same bits; where they do not, the first of those
options is named with which they change. A row that is refused, that ends with any other code than 0, or that takes
longer than two minutes is a finding too. --seed draws other rows with the same pairs.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import work
from options import OPTIONS, changes_no_bit
from table import table

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 120


class Finding(Exception):
    pass


class Runs:
    """Runs in a folder of their own, each of which leaves the bits of its training."""

    def __init__(self, program, folder):
        self.program, self.folder, self.count = program, folder, 0
        work.prepare(folder, self._start)

    def _start(self, ranks, words):
        # Where ranks have more threads than there are processors, one that waits must not spin.
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", MOELOOM_BF16="emulate",
                           MOELOOM_LOG="warn")
        command = [ROOT / "launch/with-env.sh", "mpirun", "-n", str(ranks), self.program, "train", *words]
        started = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                 timeout=SECONDS)
        if started.returncode != 0:
            raise Finding(f"exit code {started.returncode}: {' '.join(words)}\n{started.stdout}{started.stderr}")

    def bits(self, row):
        """Losses, norms and weights after two steps of a row."""
        self.count += 1
        own = self.folder / str(self.count)
        own.mkdir()
        run = own / "run"
        given = {name: value.format(work=self.folder, run=run) for name, value in row.items()}
        in_file, resumed = given.pop("config", None), given.pop("resume", None)
        words = [*work.SHAPE_OF_RUNS, *([] if "model" in row else work.SHAPE), "--run", str(run),
                 "--tokenizer", str(self.folder / "tokenizer")]
        if "data" not in given:
            given["data"] = str(self.folder / "text.txt")
        if in_file:
            half = list(given)[::2]
            pathlib.Path(in_file).write_text("".join(f"{name} = {given.pop(name)}\n" for name in half))
            words += ["--config", in_file]
        words += [word for name, value in given.items() for word in (f"--{name}", value)]
        try:
            if resumed:
                self._start(4, [*words, "--steps", "1"])
                self._start(4, ["--resume", str(run), "--steps", "2"])
            else:
                self._start(4, [*words, "--steps", "2"])
            return work.bits_of(run)
        except subprocess.TimeoutExpired:
            raise Finding(f"no end after {SECONDS} s: {' '.join(words)}")
        finally:
            shutil.rmtree(own)


def words_of(row):
    return " ".join(f"--{name} {value}" for name, value in row.items())


def check(runs, row):
    """Raises Finding where the row's bits are not those without its other ways."""
    without = {name: value for name, value in row.items() if not changes_no_bit(name, row)}
    whole, plain = runs.bits(row), runs.bits(without)
    differ = work.differences(whole, plain)
    if not differ:
        return
    ways = [option.name for option in OPTIONS if option.name in row and option.name not in without]
    same, other = 0, len(ways)  # with so many of them the bits are those without, with so many others
    while other - same > 1:
        some = ways[:(same + other) // 2]
        if work.differences(runs.bits({**without, **{name: row[name] for name in some}}), plain):
            other = len(some)
        else:
            same = len(some)
    raise Finding(f"{', '.join(differ[:3])} ({len(differ)} in all) differ, first with --{ways[same]} {row[ways[same]]} "
                  f"beside\n{words_of(without)} {words_of({name: row[name] for name in ways[:same]})}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--rows", default=":")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=pathlib.Path)
    asked = parser.parse_args()
    rows, _ = table(asked.seed)
    first, last = (int(end) if end else None for end in asked.rows.split(":"))
    folder = asked.work or pathlib.Path(tempfile.mkdtemp(prefix="moeloom-pairs-"))
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    try:
        runs = Runs(asked.program.resolve(), folder)
        for number, row in list(enumerate(rows))[first:last]:
            try:
                check(runs, row)
                print(f"pairs: row {number} of {len(rows)}, {len(row)} options: the same bits", flush=True)
            except Finding as finding:
                failed += 1
                print(f"pairs: row {number} FAILED: {finding}", flush=True)
    finally:
        if not asked.work:
            shutil.rmtree(folder)
    print(f"pairs: {runs.count} runs, {failed} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
