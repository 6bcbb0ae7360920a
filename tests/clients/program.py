"""Runs the program as a user does, and reads what it prints."""

import json
import math
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MOELOOM_BUILD") or ROOT / "build")
PROGRAM = (BUILD if BUILD.is_absolute() else ROOT / BUILD) / "moeloom"


class Refused(Exception):
    """The program ended with an error; its words are the exception's."""


def run(*arguments, stdin="", seconds=600):
    """What it prints on standard output; Refused with both outputs where its exit code is not 0."""
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], input=stdin.encode(), capture_output=True,
                          timeout=seconds, check=False)
    out, err = (text.decode("utf8", "replace") for text in (done.stdout, done.stderr))
    if done.returncode != 0:
        raise Refused(f"exit {done.returncode} of moeloom {' '.join(map(str, arguments))}\n{out}{err}".strip())
    return out


def write_ids(path, ids):
    """A file of 32-bit token ids, which train and eval read by the name .u32."""
    Path(path).write_bytes(b"".join(int(i).to_bytes(4, "little") for i in ids))
    return path


def logprobs(model, ids, folder, *options, row="ids"):
    """log p of ids[1:], each after those before it; in a row of their length, or with row=None of eval's own."""
    data, scores = write_ids(folder / "ids.u32", ids), folder / "scores.jsonl"
    length = () if row is None else ("--seq-len", len(ids))
    run("eval", "--model", model, "--data", data, "--logprobs", scores, *length, *options)
    lines = [json.loads(line) for line in scores.read_text().splitlines()]
    return [p for line in lines if "logprobs" in line for p in line["logprobs"]]


def greedy(model, ids, tokens, *options):
    """The ids that are added behind a prompt."""
    out = run("generate", "--model", model, "--prompt-ids", ",".join(map(str, ids)), "--temperature", 0,
              "--tokens", tokens, "--ignore-end", "true", *options)
    numbers = [int(n) for n in re.findall(r"\d+", out.strip().splitlines()[-1])]
    return numbers[len(ids):] if numbers[:len(ids)] == list(ids) else numbers


def steps(run_folder):
    """The lines of metrics.jsonl that are training steps."""
    lines = (json.loads(line) for line in (Path(run_folder) / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "loss" in line and "step" in line]


def close(got, wanted, tolerance):
    """Fails with the largest difference; both must be as long, and no number may be missing."""
    assert len(got) == len(wanted), f"{len(got)} numbers, not {len(wanted)}"
    assert all(map(math.isfinite, [*got, *wanted])), f"not finite: {got} {wanted}"
    largest = max((abs(a - b) for a, b in zip(got, wanted)), default=math.inf)
    assert largest < tolerance, f"differs by {largest:.3g}, allowed {tolerance:.3g}: {got} {wanted}"


def token_ids(folder, lines, *options):
    """The ids of each line; none of them may hold a line break."""
    out = run("tokenize", "--model", folder, "--ids", "true", *options, stdin="".join(line + "\n" for line in lines))
    return [[int(i) for i in line.split()] for line in out.split("\n")[:len(lines)]]


def decoded(folder, rows):
    out = run("tokenize", "--model", folder, "--decode", "true", stdin="".join(" ".join(map(str, row)) + "\n"
                                                                               for row in rows))
    return out.split("\n")[:len(rows)]


def examples(model, data, *options):
    """{line of the file: text, with « and » around what is learned}, and why the other lines cannot be used."""
    out = run("inspect", "--model", model, "--data", data, "--examples", 1000, *options)
    # An empty line stands behind every example.
    shown, _, rest = ("\n" + out).partition("\nexamples  ")
    name = re.escape(Path(data).name)
    pieces = re.split(rf"\n\S*{name}[:\[](\d+)\]?, \d+ tokens, \d+ learned\n", shown)
    texts = {int(line): text.removesuffix("\n") for line, text in zip(pieces[1::2], pieces[2::2])}
    unusable = {int(line): why for line, why in
                re.findall(rf"(?m)^  \S*{name}[:\[](\d+)\]?[:,] ?(.*)$", rest)}
    return texts, unusable
