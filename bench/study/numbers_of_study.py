"""Results of a study as the page's text asks for them: ranges of speeds, shares, bytes, and the tables.

A range is from the 10th to the 90th percentile of a point's steps. It is above a number only where all of it is, and a
ratio of two ranges is as wide as both make it.
"""


class Range:
    def __init__(self, middle, low, high):
        self.middle, self.low, self.high = middle, low, high

    def __truediv__(self, other):
        other = of(other)
        return Range(self.middle / other.middle, self.low / other.high, self.high / other.low)

    def __gt__(self, other):
        return self.low > of(other).high

    def __lt__(self, other):
        return self.high < of(other).low


def of(value):
    return value if isinstance(value, Range) else Range(value, value, value)


class Numbers:
    """Of lines of study.jsonl. Places: node, alone (one host by itself), hosts, larger. Tokens: few, many."""

    def __init__(self, rows, file_name):
        self.rows = rows
        self.file_name = file_name
        self.tokens = sorted({row["tokens"] for row in self.of_kind("measured")})

    def of_kind(self, kind, **wanted):
        return [row for row in self.rows
                if row["kind"] == kind and all(row.get(key) == value for key, value in wanted.items())]

    def one(self, kind, **wanted):
        found = self.of_kind(kind, **wanted)
        if len(found) != 1:
            raise LookupError(f"{len(found)} results, not one, for {kind} {wanted}")
        return found[0]

    def case(self, experts, place, tokens, ep, routing, kind="measured"):
        """ep: a number, "all" (the largest) or "best" (the fastest)."""
        rows = self.of_kind(kind, experts=experts, place=place, tokens=self.tokens_of(tokens), routing=routing)
        if ep == "all":
            return max(rows, key=lambda row: row["ep"])
        if ep == "best":
            return max(rows, key=lambda row: row["tokens_per_s"])
        return next(row for row in rows if row["ep"] == ep)

    def tokens_of(self, word):
        return {"few": self.tokens[0], "many": self.tokens[-1]}[word]

    def names(self):
        """What an expression may call."""

        def speed(experts, place, tokens, ep, routing="natural"):
            row = self.case(experts, place, tokens, ep, routing)
            total = row["tokens"] * row["ranks"]
            return Range(row["tokens_per_s"], 1e3 * total / row["step_ms_p90"], 1e3 * total / row["step_ms_p10"])

        def planned(experts, place, tokens, ep, routing="natural"):
            return self.case(experts, place, tokens, ep, routing, "planned")["tokens_per_s"]

        def ep(experts, place, tokens, which="best", kind="measured"):
            return self.case(experts, place, tokens, which, "natural", kind)["ep"]

        def field(name, experts, place, tokens, which, routing="natural"):
            return self.case(experts, place, tokens, which, routing)[name]

        def phase(name, experts, place, tokens, which):
            return field("phases_ms", experts, place, tokens, which)[name]

        def published(experts, of_ep, gpus):
            return self.one("published", experts=experts, gpus=gpus)["tokens_per_s"][str(of_ep)]

        names = {name: value for name, value in locals().items() if callable(value)}
        return names | {"place": lambda place, key: self.one("place", place=place)[key],
                        "tokens": self.tokens_of, "errors": self.errors, "ordered": self.ordered,
                        "simulated": lambda experts: max(abs(row["error"]) for row in
                                                         self.of_kind("simulated", experts=experts)),
                        "worst": self.worst, "file": lambda: self.file_name, "tables": self.tables(),
                        "median": lambda values: sorted(values)[len(values) // 2], "max": max, "len": len}

    def worst(self, key):
        """The largest of all that were measured."""
        return max(row[key] for row in self.of_kind("measured"))

    def pairs(self):
        """Measured rows with what was planned of them."""
        keys = ("experts", "place", "tokens", "routing", "ranks", "ep")
        planned = {tuple(row[key] for key in keys): row for row in self.of_kind("planned")}
        for row in self.of_kind("measured"):
            found = planned.get(tuple(row[key] for key in keys))
            if found:
                yield row, found

    def errors(self, place):
        return [abs(plan["step_ms"] / row["step_ms"] - 1) for row, plan in self.pairs() if row["place"] == place]

    def ordered(self, place):
        """Of two sizes of ep of a case whose steps a tenth and more divides: how many plan orders rightly, of how many."""
        pairs = [(row, plan) for row, plan in self.pairs() if row["place"] == place]
        right = []
        for i, (a, plan_a) in enumerate(pairs):
            for b, plan_b in pairs[:i]:
                same = all(a[key] == b[key] for key in ("experts", "tokens", "routing"))
                if same and max(a["step_ms"], b["step_ms"]) > 1.1 * min(a["step_ms"], b["step_ms"]):
                    right.append((a["step_ms"] > b["step_ms"]) == (plan_a["step_ms"] > plan_b["step_ms"]))
        return f"{sum(right)} of {len(right)}"

    def tables(self):
        return {"measured": self.measured_table, "larger": self.larger_table, "published": self.published_table}

    def measured_table(self):
        head = ("| place | experts | tokens a rank | routing | ep | tokens/s | of ep 1 | share of peak | MiB sent "
                "| MiB held | dropped | loss of ep 1 | planned |\n" + "|---" * 13 + "|")
        planned = {id(row): plan for row, plan in self.pairs()}
        lines, first = [head], None
        for row in self.of_kind("measured"):
            if row["ep"] == 1:
                first = row
            plan = planned.get(id(row))
            lines.append("| " + " | ".join([
                {"alone": "1 host", "node": "node"}.get(row["place"], "hosts") + f", {row['ranks']}",
                str(row["experts"]), f"{row['tokens']:,}", row["routing"], str(row["ep"]),
                f"{row['tokens_per_s']:,.0f}", f"{first['step_ms'] / row['step_ms']:.2f}x",
                f"{100 * row['peak_share']:.0f} %", f"{row['mib_sent']:,.0f}", f"{row['mib_held']:,}",
                f"{row['dropped_share']:g}", "equal" if row["loss_is_that_of_ep_1"] else "DIFFERENT",
                f"{plan['tokens_per_s']:,.0f}" if plan else ""]) + " |")
        return "\n".join(lines)

    def larger_table(self):
        """Tokens a second by ep, planned."""
        rows = [row for row in self.of_kind("planned", place="larger")]
        eps = sorted({row["ep"] for row in rows})
        lines = ["| experts | tokens a rank | routing | " + " | ".join(f"ep {ep}" for ep in eps) + " |", "|---" * (3 + len(eps)) + "|"]
        cases = dict.fromkeys((row["experts"], row["tokens"], row["routing"]) for row in rows)
        for case in cases:
            speeds = {row["ep"]: row["tokens_per_s"] for row in rows
                      if (row["experts"], row["tokens"], row["routing"]) == case}
            best = max(speeds.values())
            cells = [f"**{speeds[ep]:,.0f}**" if speeds.get(ep) == best else f"{speeds[ep]:,.0f}" if ep in speeds else ""
                     for ep in eps]
            lines.append(f"| {case[0]} | {case[1]:,} | {case[2]} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def published_table(self):
        lines = ["| source | what | tokens/s by ep |", "|---|---|---|"]
        for row in self.of_kind("published"):
            speeds = ", ".join(f"{ep}: {speed:,}" for ep, speed in row["tokens_per_s"].items())
            lines.append(f"| [{row['source']}]({row['url']}), {row['date']} | {row['what']} | {speeds} |")
        return "\n".join(lines)
