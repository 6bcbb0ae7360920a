#!/usr/bin/env python3
"""spilled_tiles.py BUILD: in the loops of the products' register tiles of aarch64, vectors that are kept on the stack.

A tile is worth its name while its sums stay in registers. Of bf16, which is emulated there, some may move.
"""
import pathlib
import re
import subprocess
import sys

TILES = re.compile(r"(multiply_tile<moeloom::packed::Fp32|multiply_rows<)")
LEAST_PRODUCTS = 4  # of a loop that is meant
ON_STACK = re.compile(r"\b(ldr|ldp|str|stp)\s+[qdsv]\d+.*\[sp\b")
INSTRUCTION = re.compile(r"\s+[0-9a-f]+:\s")
BRANCH = re.compile(r"\s(?:b\.\w+|cbn?z|tbn?z)\s.*?\b([0-9a-f]+) <")


def functions(text):
    for part in re.split(r"\n\n(?=[0-9a-f]+ <)", text):
        name, _, body = part.strip().partition(">:\n")
        yield name.partition("<")[2], [line for line in body.splitlines() if INSTRUCTION.match(line)]


def loops(lines):
    """Of each backward jump to a place of the same function."""
    places = {int(line.split(":")[0], 16): i for i, line in enumerate(lines) }
    for i, line in enumerate(lines):
        if (jump := BRANCH.search(line)) and places.get(int(jump[1], 16), i) < i:
            yield lines[places[int(jump[1], 16)]: i + 1]


seen, spilled = 0, []
for file in sorted(pathlib.Path(sys.argv[1]).glob("CMakeFiles/moeloom_kernels.dir/src/kernels/tile/*.o")):
    text = subprocess.run(["aarch64-linux-gnu-objdump", "-dC", "--no-show-raw-insn", file], check=True,
                          capture_output=True, text=True).stdout
    for name, lines in functions(text):
        if not TILES.search(name):
            continue
        for loop in loops(lines):
            if sum("fmla" in line for line in loop) < LEAST_PRODUCTS:
                continue
            seen += 1
            if any(ON_STACK.search(line) for line in loop):
                spilled.append(f"{file.name}: {name}")
if not seen or spilled:
    sys.exit("\n".join(["failed: vectors on the stack in the loops of", *spilled] if seen else ["failed: no tile found"]))
print(f"tiles: {seen} loops, and every sum in a register")
