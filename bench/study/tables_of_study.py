"""The tables of a study's page, in Markdown."""

PLACES = {"node": "node", "alone": "1 host", "whole": "whole", "hosts": "hosts"}


def table(heading, lines):
    return "\n".join("| " + " | ".join(line) + " |" for line in [heading, ["---"] * len(heading), *lines])


def measured(numbers):
    plans = {id(row): plan for row, plan in numbers.pairs()}
    heading = ["row", "place", "experts", "tokens a rank", "routing", "ep", "tokens/s", "of ep 1", "share of peak",
               "MiB sent", "MiB held", "dropped", "loss of ep 1", "planned"]
    lines = []
    for number, row in enumerate(numbers.of_kind("measured"), 1):
        plan = plans.get(id(row))
        lines.append([
            str(number), f"{PLACES[row['place']]}, {row['ranks']}", str(row["experts"]), f"{row['tokens']:,}",
            row["routing"], str(row["ep"]), f"{row['tokens_per_s']:,.0f}",
            f"{1 / row['of_first']:.2f}x ({1 / row['of_first_p90']:.2f} to {1 / row['of_first_p10']:.2f})"
            if row["ep"] > 1 else "1x",
            f"{100 * row['peak_share']:.0f} %", f"{row['mib_sent']:,.0f}", f"{row['mib_held']:,}",
            f"{row['dropped_share']:g}", "equal" if row["loss_is_that_of_ep_1"] else "DIFFERENT",
            f"{plan['tokens_per_s']:,.0f}" if plan else ""])
    return table(heading, lines)


def larger(numbers):
    rows = numbers.of_kind("planned", place="larger")
    eps = sorted({row["ep"] for row in rows})
    cases = {}
    for row in rows:
        cases.setdefault((row["experts"], row["tokens"], row["routing"]), {})[row["ep"]] = row["tokens_per_s"]
    lines = []
    for (experts, tokens, routing), speeds in sorted(cases.items()):
        best = max(speeds, key=speeds.get)
        texts = {ep: f"{speed:,.0f}" for ep, speed in speeds.items()} | {best: f"**{speeds[best]:,.0f}**"}
        lines.append([str(experts), f"{tokens:,}", routing, *(texts.get(ep, "") for ep in eps)])
    return table(["experts", "tokens a rank", "routing", *(f"ep {ep}" for ep in eps)], lines)


def published(numbers):
    lines = [[f"[{row['source']}]({row['url']}), {row['date']}", row["what"],
              "; ".join(f"{ep}: {speed:,}" for ep, speed in row["tokens_per_s"].items()) or "none seen"]
             for row in numbers.of_kind("published")]
    return table(["source", "what", "tokens/s"], lines)
