#!/usr/bin/env python3
"""What a study has measured, as one file: bench/study/gather.py all DIR > study.jsonl

Each line is a result with its kind: place, measured, planned (of a mesh that was measured or of a larger one),
simulated, published (GPU tables to compare with, from published.json). `load DIR PLACE EXPERTS TOKENS` prints how
uneven rows were, `processors DIR` how many the node has.
"""
import json
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).parent
PLACES = ("node", "alone", "whole", "hosts")


def points_of(folder, place):
    path = folder / place / "points.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measured_of(place, point, losses):
    """Bytes and memory are of a rank. losses: of ep = 1 by case."""
    experts = int(re.search(r"(\d+) experts", point["model"])[1])
    row = {
        "kind": "measured",
        "place": place,
        "experts": experts,
        "tokens": point["tokens"] // point["ranks"],
        "routing": "natural" if point["workload"] == "natural" else "recorded",
        "ranks": point["ranks"],
        "ep": point["ep"],
    }
    case = tuple(row[key] for key in ("place", "experts", "tokens", "routing", "ranks"))
    losses.setdefault(case, point["loss"])  # rows of a case begin with ep = 1
    for key in ("tokens_per_s", "of_first", "of_first_p10", "of_first_p90", "step_ms", "step_ms_p10", "step_ms_p90",
                "peak_share", "peak_gflops", "dropped_share", "expert_load", "rank_load", "dispatcher_used", "samples"):
        row[key] = point[key]
    row["mib_sent"] = round(point["message_bytes"] / point["ranks"] / 2**20, 1)
    row["mib_held"] = round(point["memory_bytes"] / 2**20)
    row["grouped"] = point["gmm_applied"]
    row["loss"] = point["loss"]
    row["loss_is_that_of_ep_1"] = point["loss"] == losses[case]
    row["phases_ms"] = {key[3:]: round(value, 1) for key, value in point.items() if key.startswith("ms_")}
    return row


def planned_of(path):
    """The fastest way of each ep that runs grouped matmul; a larger job's place is `larger`."""
    _, place, experts, tokens, routing = path.stem.split("-")
    plan = json.loads(path.read_text())
    best = {}
    for point in plan["points"]:
        if point["experts"] != "loop" and point["fits"]:
            best.setdefault(point["ep"], point)
    for ep, point in sorted(best.items()):
        yield {"kind": "planned", "place": place, "experts": int(experts), "tokens": int(tokens), "routing": routing,
               "ranks": plan["ranks"], "ep": ep, "tokens_per_s": point["tokens_per_s"],
               "step_ms": round(1e3 * point["step_seconds"], 1), "dispatcher": point["dispatcher"],
               "mib_sent": round(point["message_bytes"] / 2**20, 1)}


def place_of(folder, place, points):
    shaped = json.loads((folder / "places.json").read_text())
    first = points[0]
    rest = re.fullmatch(r"(.*?)\d+ experts(.*)", first["model"])
    row = {key: first[key] for key in ("cpu", "processors", "threads", "mpi", "blas", "version", "commit")}
    row.update(kind="place", place=place, model=f"{rest[1]}experts{rest[2]}",
               ranks=max(point["ranks"] for point in points), measured_at=points[-1]["measured_at"],
               samples=" or ".join(map(str, sorted({point["samples"] for point in points}))))
    return row | (shaped if place == "hosts" else {})


def gather(folder):
    for place in PLACES:
        points = [point for point in points_of(folder, place) if not point["skipped"]]
        if not points:
            continue
        yield place_of(folder, place, points)
        losses = {}
        for point in points:
            yield measured_of(place, point, losses)
    for path in sorted(folder.glob("plan-*.json")):
        yield from planned_of(path)
    for path in sorted(folder.glob("simulated-*.json")):
        for row in json.loads(path.read_text()):
            yield {"kind": "simulated", "experts": int(path.stem.split("-")[1])} | row
    yield from ({"kind": "published"} | row for row in json.loads((HERE / "published.json").read_text()))


def load_of(folder, place, experts, tokens):
    """Rows of the fullest expert over the mean, as routers chose by themselves."""
    rows = [measured_of(place, point, {}) for point in points_of(folder, place) if not point["skipped"]]
    return statistics.median(row["expert_load"] for row in rows
                             if (row["experts"], row["tokens"], row["routing"]) == (experts, tokens, "natural"))


def main(chosen, folder, *words):
    folder = pathlib.Path(folder)
    if chosen == "load":
        print(round(load_of(folder, words[0], int(words[1]), int(words[2])), 3))
    elif chosen == "processors":
        print(points_of(folder, "node")[0]["processors"])
    else:
        for result in gather(folder):
            print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
