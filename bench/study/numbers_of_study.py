"""Results of a study as the page's text asks for them.

Places: node, alone (one host by itself; with a hostfile the node), whole (two hosts without a quota), hosts, larger.
Tokens of a rank: few, many. An ep is a number, "all" (the largest) or "best" (the fastest).
"""
import re


class Range:
    """From the 10th to the 90th percentile: above a number only where all of it is."""

    def __init__(self, middle, low, high):
        self.middle, self.low, self.high = middle, low, high

    def __truediv__(self, other):
        """As wide as both make it."""
        return Range(self.middle / other.middle, self.low / other.high, self.high / other.low)

    def __gt__(self, number):
        return self.low > number

    def __lt__(self, number):
        return self.high < number


class Numbers:
    """Of lines of study.jsonl; public methods are what an expression of the text may call."""

    def __init__(self, rows, file_name):
        self._rows = rows
        self._file_name = file_name
        self._tokens = sorted({row["tokens"] for row in self.of_kind("measured")})

    def names(self):
        """By name; `median` of a list, `max`."""
        methods = {name: getattr(self, name) for name in dir(self) if not name.startswith("_")}
        return methods | {"median": lambda values: sorted(values)[len(values) // 2], "max": max}

    def of_kind(self, kind, **wanted):
        return [row for row in self._rows
                if row["kind"] == kind and all(row.get(key) == value for key, value in wanted.items())]

    def file(self):
        return self._file_name

    def place(self, place, key):
        return self.of_kind("place", place=place)[0][key]

    def tokens(self, word):
        return {"few": self._tokens[0], "many": self._tokens[-1]}[word]

    def _case(self, kind, experts, place, tokens, routing):
        if place == "alone" and not self.of_kind("measured", place=place):
            place = "node"
        wanted = {"experts": experts, "place": place, "tokens": self.tokens(tokens), "routing": routing}
        found = self.of_kind(kind, **wanted)
        if not found:
            raise LookupError(f"nothing {kind} of {experts} experts, {place}, {tokens} tokens, {routing}")
        return found

    def _row(self, experts, place, tokens, ep, routing="natural", kind="measured"):
        found = [row for row in self._case(kind, experts, place, tokens, routing) if ep in ("all", "best", row["ep"])]
        if not found:
            raise LookupError(f"nothing {kind} of {experts} experts, {place}, {tokens} tokens, ep = {ep}")
        return max(found, key=lambda row: row["tokens_per_s" if ep == "best" else "ep"])

    def rows(self, experts, place, tokens, routing="natural"):
        """Their numbers in the table."""
        measured = self.of_kind("measured")
        numbers = [measured.index(row) + 1 for row in self._case("measured", experts, place, tokens, routing)]
        return f"row {numbers[0]}" if len(numbers) == 1 else f"rows {numbers[0]} to {numbers[-1]}"

    def speed(self, experts, place, tokens, ep, routing="natural"):
        """Tokens a second."""
        row = self._row(experts, place, tokens, ep, routing)
        of_a_second = 1e3 * row["tokens"] * row["ranks"]
        return Range(row["tokens_per_s"], of_a_second / row["step_ms_p90"], of_a_second / row["step_ms_p10"])

    def gain(self, experts, place, tokens, ep, routing="natural"):
        """Times as fast as ep = 1, step by step in turn."""
        row = self._row(experts, place, tokens, ep, routing)
        return Range(1 / row["of_first"], 1 / row["of_first_p90"], 1 / row["of_first_p10"])

    def planned(self, experts, place, tokens, ep, routing="natural"):
        return self._row(experts, place, tokens, ep, routing, "planned")["tokens_per_s"]

    def ep(self, experts, place, tokens, which="best", kind="measured"):
        return self._row(experts, place, tokens, which, "natural", kind)["ep"]

    def field(self, name, experts, place, tokens, which, routing="natural"):
        return self._row(experts, place, tokens, which, routing)[name]

    def sent(self, experts, tokens, which):
        """MiB that a rank of the hosts hands to MPI in a step."""
        return self.field("mib_sent", experts, "hosts", tokens, which)

    def phase(self, name, experts, place, tokens, which):
        return self.field("phases_ms", experts, place, tokens, which)[name]

    def sums(self, *case):
        """Milliseconds of reductions, of the update and of new weights."""
        return self.phase("reduce", *case) + self.phase("optimizer", *case)

    def rows_ms(self, *case):
        """Milliseconds in which rows are planned, sent and sent back."""
        return sum(self.phase(name, *case) for name in ("plan", "dispatch", "combine"))

    def even_tokens(self, experts):
        """Of a rank, at which rows are as many bytes as gradients and new weights of experts, where all ranks share.

        Rows: 4 passes x K x 4 D bytes a token; gradients and weights: 2 x 3 E D F x 4 bytes; both times 1 - 1 / ranks.
        """
        width, top_k = re.search(r"experts of (\d+), top-(\d+)", self.place("hosts", "model")).groups()
        return 1.5 * experts * int(width) / int(top_k)

    def _sides(self):
        """Whether the largest ep sends fewer bytes than ep = 1, and whether even_tokens() says so."""
        for experts in (64, 512):
            for tokens in ("few", "many"):
                fewer = self.sent(experts, tokens, "all") < self.sent(experts, tokens, 1)
                yield fewer == (self.tokens(tokens) < self.even_tokens(experts))

    def byte_cases(self):
        return len(list(self._sides()))

    def other_sides(self):
        return sum(not agrees for agrees in self._sides())

    def _shared(self):
        return [row for row in self.of_kind("measured") if row["ep"] > 1]

    def compared_losses(self):
        return len(self._shared())

    def other_losses(self):
        return sum(not row["loss_is_that_of_ep_1"] for row in self._shared())

    def worst(self, key):
        """The largest magnitude of all that were measured."""
        return max(abs(row[key]) for row in self.of_kind("measured"))

    def larger(self):
        """Ranks that were predicted."""
        return self._row(64, "larger", "few", "all", kind="planned")["ranks"]

    def pairs(self):
        """Measured rows with what was planned of them."""
        keys = ("experts", "place", "tokens", "routing", "ranks", "ep")
        planned = {tuple(row[key] for key in keys): row for row in self.of_kind("planned")}
        for row in self.of_kind("measured", grouped=True):
            found = planned.get(tuple(row[key] for key in keys))
            if found:
                yield row, found

    def errors(self, place):
        found = [abs(plan["step_ms"] / row["step_ms"] - 1) for row, plan in self.pairs() if row["place"] == place]
        if not found:
            raise LookupError(f"nothing was planned of what was measured on {place}")
        return found

    def ordered(self, place):
        """How many pairs of ep plan orders rightly, of those of a case whose steps a tenth and more divides."""
        pairs = [(row, plan) for row, plan in self.pairs() if row["place"] == place]
        right = []
        for i, (a, plan_a) in enumerate(pairs):
            for b, plan_b in pairs[:i]:
                same = all(a[key] == b[key] for key in ("experts", "tokens", "routing"))
                if same and max(a["step_ms"], b["step_ms"]) > 1.1 * min(a["step_ms"], b["step_ms"]):
                    right.append((a["step_ms"] > b["step_ms"]) == (plan_a["step_ms"] > plan_b["step_ms"]))
        return f"{sum(right)} of {len(right)}"

    def simulated(self, experts):
        """The largest error of a predicted exchange."""
        rows = self.of_kind("simulated", experts=experts)
        if not rows:
            raise LookupError("nothing was simulated, as SimGrid is not installed or its build failed")
        return max(abs(row["error"]) for row in rows)

    def published(self, experts, name):
        row = self.of_kind("published", experts=experts)[0]
        return row["tokens_per_s"].get(name) or row[name]
