#!/usr/bin/env python3
"""Trains two steps with each row of a pairwise table of options, and again without those that change no bit.

    run.py MOELOOM [--part K/N | --rows FROM:TO] [--seed N]

Every row runs on 4 ranks: first whole, then without the options of which `options.py` says that they are another way to
the same training. Losses, gradient norms, weights and moments must have the same bits; where they do not, the first of
those options is named with which they change. A row that is refused, that ends with any other code than 0, or that
takes longer than 200 s is a finding too, and so is what `options.py` says that is refused and is not, or is with words
of other options. --seed draws other rows with the same pairs.
"""
import argparse
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import work
from options import ABSENT, LEFT_OUT, OF_NAME, OPTIONS, REFUSED, SAID, changes_no_bit
from table import is_implied, needs_of, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 200  # of a run, however much else the machine has to do; ctest ends a part after 1200


class Finding(Exception):
    pass


class Failed(Finding):
    def __init__(self, code, words, said):
        super().__init__(f"exit code {code}: {' '.join(words)}\n{said}")
        self.code, self.said = code, said


class Runs:
    """Runs in a folder of their own, each of which leaves the bits of its training."""

    def __init__(self, program, folder):
        self.program, self.folder, self.count = program, folder, 0
        work.prepare(folder, self._start)

    def _start(self, ranks, words, nodes=None):
        # Where ranks have more threads than there are processors, one that waits must not spin.
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", MOELOOM_BF16="emulate",
                           MOELOOM_LOG="warn", **({"MOELOOM_PRETEND_NODES": nodes} if nodes else {}))
        command = [ROOT / "launch/with-env.sh", "mpirun", "-n", str(ranks), self.program, "train", *words]
        with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as started:
            try:
                said, _ = started.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                started.terminate()  # mpirun ends its ranks
                try:
                    started.wait(20)
                except subprocess.TimeoutExpired:
                    started.kill()
                raise Finding(f"no end after {SECONDS} s: {' '.join(words)}") from None
        if started.returncode != 0:
            raise Failed(started.returncode, words, said)

    def bits(self, row):
        """Losses, norms, weights and moments after two steps of a row."""
        self.count += 1
        own = self.folder / str(self.count)
        own.mkdir()
        run = own / "run"
        given = {name: value.format(work=self.folder, run=run) for name, value in row.items()}
        in_file, resumed, nodes = (given.pop(name, None) for name in ("config", "resume", "nodes"))
        words = [*work.SHAPE_OF_RUNS, *([] if "model" in row else work.SHAPE), "--run", str(run),
                 "--tokenizer", str(self.folder / "tokenizer")]
        given.setdefault("data", str(self.folder / "text.txt"))
        if in_file:
            half = list(given)[::2]
            pathlib.Path(in_file).write_text("".join(f"{name} = {given.pop(name)}\n" for name in half))
            words += ["--config", in_file]
        words += [word for name, value in given.items() for word in (f"--{name}", value)]
        try:
            if resumed:
                self._start(4, [*words, "--steps", "1"], nodes)
                self._start(4, ["--resume", str(run), "--steps", "2"], nodes)
            else:
                self._start(4, [*words, "--steps", "2"], nodes)
            return work.bits_of(run)
        finally:
            shutil.rmtree(own, ignore_errors=True)


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


def refused_rows():
    """Each rule with a row for every choice of its values, of the first where any will do."""
    for rule in REFUSED:
        for chosen in itertools.product(*(values or OF_NAME[name].values[:1] for name, values in rule.items())):
            row = {name: value for name, value in ({"ep": "2"} | dict(zip(rule, chosen))).items() if value != ABSENT}
            yield rule, row | {name: OF_NAME[name].values[0] for name in sorted(needs_of(row) - rule.keys())}


def check_refused(runs, rule, row):
    """What is said to be refused is, as a choice or as data, with the names of two options of the rule, where it has two."""
    try:
        runs.bits(row)
    except Failed as failed:
        if failed.code not in (1, 65):
            raise
        named = [name for name in rule if re.search(rf"--{name}(?![a-z-])|{SAID.get(name, '(?!)')}", failed.said)]
        if len(named) >= min(2, sum(values != (ABSENT,) for values in rule.values())):
            return
        raise Finding(f"refused for another reason than {' '.join(rule)}: {words_of(row)}\n{failed.said}") from None
    raise Finding(f"options.py says that this is refused, and it runs: {words_of(row)}")


def check_options(program):
    """Every option of the program is said."""
    said = subprocess.run([program, "train", "--help"], capture_output=True, text=True, check=True).stdout
    known = OF_NAME.keys() | set(" ".join(LEFT_OUT).split())
    unknown = set(re.findall(r"^  --([a-z0-9-]+) ", said, re.MULTILINE)) - known
    if unknown:
        raise Finding(f"neither in the table nor in LEFT_OUT of options.py: {sorted(unknown)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--rows", default=":")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rows, _, impossible = table(asked.seed)
    first, last = (int(end) if end else None for end in asked.rows.split(":"))
    part, parts = map(int, asked.part.split("/"))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="moeloom-pairs-", ignore_cleanup_errors=True) as folder:
        runs = Runs(asked.program.resolve(), pathlib.Path(folder))

        def tell(what, ask):
            nonlocal failed
            try:
                ask()
                print(f"pairs: {what}", flush=True)
            except Finding as finding:
                failed += 1
                print(f"pairs: {what} FAILED: {finding}", flush=True)

        for number, row in list(enumerate(rows))[first:last][part - 1::parts]:
            tell(f"row {number} of {len(rows)}, {len(row)} options, compared", lambda: check(runs, row))
        if not first:
            for rule, row in list(refused_rows())[part - 1::parts]:
                tell(f"refused: {words_of(row)}", lambda: check_refused(runs, rule, row))
        if not first and part == 1:
            tell("no option of the program is left out in silence", lambda: check_options(runs.program))
            unexplained = [two for two in impossible if not is_implied(two)]
            if unexplained:
                failed += 1
                print(f"pairs: no row has {unexplained}, and no rule refuses them")
    print(f"pairs: {runs.count} runs, {failed} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
