#!/usr/bin/env python3
"""The page about the sizes of ep says what its results say: tests/study/page_test.py.

The committed page is written anew from the committed results. Then results are bent, and the page has to say of each
sentence with a claim that these results contradict it.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUDY = ROOT / "bench" / "study"
PAGE = ROOT / "bench" / "which-ep.md"
sys.dont_write_bytecode = True
sys.path.insert(0, str(STUDY))

import gather  # noqa: E402
import page  # noqa: E402
from numbers_of_study import Numbers, Range  # noqa: E402

RESULTS = ROOT / "bench" / re.search(r"results/[\w-]+\.jsonl", PAGE.read_text())[0]
TEXT = (STUDY / "page.md").read_text()
PLACE = r"\{\w+:\s([^}]*)\}"
CLAIMS = {" ".join(claim.split()) for claim in re.findall(PLACE, TEXT) if re.search("[<>]", claim)}


def results():
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def written(rows, text=TEXT):
    """The page of other results, and the claims that they contradict."""
    of = page.Text(Numbers(rows, RESULTS.name))
    return of.page(text), {claim for _, false in of.contradicted for claim in false}


def exchanged():
    """The sizes of ep of each measured case in the opposite order: what was of ep = 1 is of the largest."""
    cases = {}
    rows = results()
    for row in rows:
        if row["kind"] == "measured":
            cases.setdefault((row["experts"], row["place"], row["tokens"], row["routing"]), []).append(row)
    for case in cases.values():
        for row, other in zip(case, [dict(row) for row in reversed(case)]):
            row.update(other, ep=row["ep"], loss_is_that_of_ep_1=False, dropped_share=0.01)
            row["of_first"], row["of_first_p10"], row["of_first_p90"] = (
                1 / other["of_first"], 1 / other["of_first_p90"], 1 / other["of_first_p10"])
            if len(case) > 2:  # by the first of the turned order
                for key in ("of_first", "of_first_p10", "of_first_p90"):
                    row[key] = other[key] / case[-1]["of_first"] if row["ep"] > 1 else 1
    return rows


def scaled(factor_of):
    """factor_of(row, key): by which a number is multiplied."""
    rows = results()
    for row in rows:
        for key, value in row.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                row[key] = value * factor_of(row, key)
    return rows


def bent():
    """Results that contradict one claim or another."""
    measured = {"tokens_per_s": 1, "step_ms": -1, "step_ms_p10": -1, "step_ms_p90": -1}
    alone = {place: scaled(lambda row, key, place=place: 20 ** measured.get(key, 0) if row.get("place") == place
                           and row["kind"] == "measured" else 1) for place in ("alone", "hosts")}
    yield from alone.values()
    yield exchanged()
    yield scaled(lambda row, key: 3 if row["kind"] == "planned" and key == "step_ms" else 1)
    yield scaled(lambda row, key: 1000 if row["kind"] == "simulated" and key == "error" else 1)
    for small in (True, False):  # the best of a larger job is all ranks, or one
        yield scaled(lambda row, key, small=small: row["ep"] ** (-9 if small else 9)
                     if row.get("place") == "larger" and key == "tokens_per_s" else 1)
    for sign in (-1, 1):  # ep = 2 on the node far from ep = 1
        yield scaled(lambda row, key, sign=sign: 2.0 ** sign if key.startswith("of_first") and row["ep"] > 1 else 1)
        yield scaled(lambda row, key, sign=sign: 3.0 ** sign if key == "mib_sent" and row["ep"] > 1 else 1)
        yield scaled(lambda row, key, sign=sign: 3.0 ** sign if key == "mib_sent" and row.get("tokens") == 4096 else 1)
    yield scaled(lambda row, key: 0.2 if key.startswith("of_first") and row["ep"] > 2 else 1)
    yield scaled(lambda row, key: 0.01 if key in ("rank_load", "expert_load") else 1)
    rows = results()
    for row in rows:
        if row["kind"] == "published":
            row["tokens_per_s"] = {name: 1 / speed for name, speed in row["tokens_per_s"].items()}
            row["sequences_a_gpu"] = -row.get("sequences_a_gpu", 0)
    yield rows
    rows = results()
    for row in rows:
        if row["kind"] == "measured":
            row["phases_ms"] = {name: ms * (100 if name == "experts" and row["ep"] > 1 else 10 if name == "experts" else 1)
                                for name, ms in row["phases_ms"].items()}
    yield rows


class ThePage(unittest.TestCase):
    def test_is_that_of_its_results(self):
        done = subprocess.run([STUDY / "page.py", RESULTS, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, PAGE.read_text(), f"write it anew: bench/study/page.py {RESULTS} > {PAGE}")

    def test_says_where_the_sizes_of_ep_are_in_another_order(self):
        text, _ = written(exchanged())
        for sentence in (1, 2, 3, 5, 6, 8, 9):
            self.assertIn(f"\n{sentence}. **Not in these results**", text)
        self.assertIn("DIFFERENT", text)

    def test_each_claim_is_contradicted_by_some_results(self):
        # Those that say a count or a size is there at all.
        given = {claim for claim in CLAIMS if claim.endswith("() > 0") or claim.startswith("even_tokens")}
        contradicted = set().union(*(written(rows)[1] for rows in bent()))
        self.assertEqual(CLAIMS - given - contradicted, set())
        self.assertGreaterEqual(len(CLAIMS), 35)

    def test_ends_with_an_error_where_a_claim_does_not_hold(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("\n".join(json.dumps(row) for row in exchanged()))
            file.flush()
            done = subprocess.run([STUDY / "page.py", file.name, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("gain(512, 'hosts', 'few', 'all') > 1", done.stderr)

    def test_has_its_numbers_from_the_results(self):
        """What stands in the text itself are names, percentiles, the two models, a formula, how routers were trained."""
        prose = re.sub(rf"{PLACE}|`[^`]*`|fp32|bf16|ZeRO-1|[Ss]entence 4", "", TEXT)
        prose = re.sub(r"^\d+\. ", "", prose, flags=re.MULTILINE)
        numbers = set(re.findall(r"\d+(?:[.,/]\d+)*", prose))
        self.assertLessEqual(numbers, {"1", "2", "3", "3/2", "8", "10", "64", "90", "100", "128", "512"})

    def test_has_ten_sentences(self):
        self.assertEqual(re.findall(r"^(\d+)\. ", TEXT, flags=re.MULTILINE), [str(i) for i in range(1, 11)])

    def test_names_what_was_not_measured(self):
        text, false = written(results(), "1. It is {x: speed(63, 'hosts', 'few', 1)} as fast.")
        self.assertEqual(text, "1. **Not in these results**: nothing measured of 63 experts, hosts, few tokens, natural.\n")
        self.assertEqual(len(false), 1)
        text, false = written([row for row in results() if row["kind"] != "simulated"])
        self.assertEqual(len(false), 1)
        self.assertIn("SimGrid is not installed", text)

    def test_of_a_hostfile_has_the_node_in_place_of_a_host_alone(self):
        rows = [row for row in results() if row.get("place") not in ("alone", "whole")]
        text, false = written(rows)
        self.assertNotIn("of range", text)
        self.assertIn("as many tokens a second as one with 64 experts", " ".join(text.split()))
        self.assertFalse([claim for claim in false if claim.startswith("gain(64, 'hosts'")])


class ARange(unittest.TestCase):
    def test_is_above_a_number_where_all_of_it_is(self):
        self.assertTrue(Range(1.2, 1.1, 1.3) > 1)
        self.assertFalse(Range(1.2, 0.9, 1.3) > 1)
        self.assertTrue(Range(0.8, 0.7, 0.9) < 1)
        self.assertFalse(Range(0.8, 0.7, 1.1) < 1)

    def test_of_a_quotient_is_as_wide_as_both_make_it(self):
        quotient = Range(2, 1, 4) / Range(4, 2, 8)
        self.assertEqual((quotient.middle, quotient.low, quotient.high), (0.5, 0.125, 2))


class Gathering(unittest.TestCase):
    POINT = {"workload": "natural", "model": "2 layers, hidden 8, 64 experts of 4", "tokens": 64, "ranks": 2, "ep": 1,
             "loss": 5.5, "message_bytes": 4 << 20, "memory_bytes": 3 << 20, "ms_experts": 1.26, "gmm_applied": True}
    for key in ("tokens_per_s", "of_first", "of_first_p10", "of_first_p90", "step_ms", "step_ms_p10", "step_ms_p90",
                "peak_share", "peak_gflops", "dropped_share", "expert_load", "rank_load", "dispatcher_used", "samples"):
        POINT[key] = 1

    def test_marks_a_loss_that_is_not_that_of_ep_1(self):
        losses = {}
        first = gather.measured_of("hosts", self.POINT, losses)
        self.assertTrue(first["loss_is_that_of_ep_1"])
        self.assertEqual((first["tokens"], first["mib_sent"], first["mib_held"]), (32, 2.0, 3))
        self.assertEqual(first["phases_ms"], {"experts": 1.3})
        for loss, equal in ((5.5, True), (5.5 + 1e-15, False)):
            row = gather.measured_of("hosts", self.POINT | {"ep": 2, "loss": loss}, losses)
            self.assertEqual(row["loss_is_that_of_ep_1"], equal)

    def test_takes_the_fastest_way_of_each_ep_that_fits_and_is_grouped(self):
        ways = [(1, "gmm", True, 9), (2, "loop", True, 3), (2, "gmm", False, 4), (2, "gmm, packed", True, 5),
                (2, "gmm", True, 6)]
        points = [{"ep": ep, "experts": experts, "fits": fits, "tokens_per_s": 1 / s, "step_seconds": s,
                   "dispatcher": "-", "message_bytes": 0} for ep, experts, fits, s in ways]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "plan-larger-512-1024-natural.json"
            path.write_text(json.dumps({"ranks": 64, "points": points}))
            rows = list(gather.planned_of(path))
        self.assertEqual([(row["ep"], row["step_ms"]) for row in rows], [(1, 9000), (2, 5000)])
        self.assertEqual((rows[0]["place"], rows[0]["experts"], rows[0]["ranks"]), ("larger", 512, 64))


if __name__ == "__main__":
    unittest.main()
