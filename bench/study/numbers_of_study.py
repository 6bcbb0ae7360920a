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
        if place == "alone" and not self.of_kind("measured", place=place):
            place = "node"  # of a hostfile
        rows = self.of_kind(kind, experts=experts, place=place, tokens=self.tokens_of(tokens), routing=routing)
        found = [row for row in rows if ep in ("all", "best", row["ep"])]
        if not found:
            raise LookupError(f"nothing {kind} of {experts} experts, {place}, {tokens} tokens, {routing}, ep = {ep}")
        return max(found, key=lambda row: row["tokens_per_s" if ep == "best" else "ep"])

    def tokens_of(self, word):
        return {"few": self.tokens[0], "many": self.tokens[-1]}[word]

    def names(self):
        """What an expression may call."""

        def speed(experts, place, tokens, ep, routing="natural"):
            row = self.case(experts, place, tokens, ep, routing)
            total = row["tokens"] * row["ranks"]
            return Range(row["tokens_per_s"], 1e3 * total / row["step_ms_p90"], 1e3 * total / row["step_ms_p10"])

        def gain(experts, place, tokens, ep, routing="natural"):
            """Of ep = 1, step by step in turn."""
            row = self.case(experts, place, tokens, ep, routing)
            return Range(1 / row["of_first"], 1 / row["of_first_p90"], 1 / row["of_first_p10"])

        def rows(experts, place, tokens, routing="natural"):
            """Their numbers in the table."""
            wanted = {"experts": experts, "place": place, "tokens": self.tokens_of(tokens), "routing": routing}
            numbers = [number for number, row in enumerate(self.of_kind("measured"), 1)
                       if all(row[key] == value for key, value in wanted.items())]
            return f"rows {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"row {numbers[0]}"

        def planned(experts, place, tokens, ep, routing="natural"):
            return self.case(experts, place, tokens, ep, routing, "planned")["tokens_per_s"]

        def ep(experts, place, tokens, which="best", kind="measured"):
            return self.case(experts, place, tokens, which, "natural", kind)["ep"]

        def field(name, experts, place, tokens, which, routing="natural"):
            return self.case(experts, place, tokens, which, routing)[name]

        def phase(name, experts, place, tokens, which):
            return field("phases_ms", experts, place, tokens, which)[name]

        def sums(experts, place, tokens, which):
            """Milliseconds of reductions, of the update and of new weights."""
            return phase("reduce", experts, place, tokens, which) + phase("optimizer", experts, place, tokens, which)

        def even_tokens(experts):
            """Of a rank, at which rows are as many bytes as gradients and weights of experts; dense ones left in."""
            sent = {which: field("mib_sent", experts, "hosts", "few", which) for which in (1, "all")}
            return self.tokens[0] * sent[1] / sent["all"]

        def published(experts, of_ep, gpus):
            return self.one("published", experts=experts, gpus=gpus)["tokens_per_s"][str(of_ep)]

        names = {name: value for name, value in locals().items() if callable(value)}
        shared = [row for row in self.of_kind("measured") if row["ep"] > 1]
        return names | {"compared_losses": lambda: len(shared),
                        "other_losses": lambda: sum(not row["loss_is_that_of_ep_1"] for row in shared), "place": lambda place, key: self.one("place", place=place)[key],
                        "tokens": self.tokens_of, "errors": self.errors, "ordered": self.ordered,
                        "simulated": self.simulated,
                        "worst": self.worst, "file": lambda: self.file_name, "tables": self.tables(),
                        "median": lambda values: sorted(values)[len(values) // 2], "max": max, "len": len}

    def simulated(self, experts):
        rows = self.of_kind("simulated", experts=experts)
        if not rows:
            raise LookupError("nothing simulated, because SimGrid was not installed")
        return max(abs(row["error"]) for row in rows)

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
        head = ("| row | place | experts | tokens a rank | routing | ep | tokens/s | of ep 1 | share of peak | MiB sent "
                "| MiB held | dropped | loss of ep 1 | planned |\n" + "|---" * 14 + "|")
        planned = {id(row): plan for row, plan in self.pairs()}
        lines = [head]
        for number, row in enumerate(self.of_kind("measured"), 1):
            plan = planned.get(id(row))
            lines.append("| " + " | ".join([
                str(number), {"alone": "1 host", "node": "node"}.get(row["place"], "hosts") + f", {row['ranks']}",
                str(row["experts"]), f"{row['tokens']:,}", row["routing"], str(row["ep"]),
                f"{row['tokens_per_s']:,.0f}", f"{1 / row['of_first']:.2f}x",
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
            speeds = ", ".join(f"{ep}: {speed:,}" for ep, speed in row["tokens_per_s"].items()) or "none given"
            lines.append(f"| [{row['source']}]({row['url']}), {row['date']} | {row['what']} | {speeds} |")
        return "\n".join(lines)
