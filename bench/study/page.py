#!/usr/bin/env python3
"""The page of a study: bench/study/page.py RESULTS.jsonl [--text FILE] [--check] > which-ep.md

Results are what launch/bench-ep.sh --study has written. The text (page.md) has places for their numbers:

    {x: speed(512, 'hosts', 'all') / speed(512, 'hosts', 1) > 1}

x is how the number is written, the rest a Python expression of the functions of Numbers. A comparison is the claim that
the sentence makes. Speeds are ranges from the 10th to the 90th percentile, and all of a range has to be on the claimed
side. Where one is not, the sentence is marked as contradicted by these results, and --check ends with 1 and names it.
"""
import argparse
import ast
import json
import pathlib
import re
import sys
import textwrap

import tables_of_study
from numbers_of_study import Numbers, Range

FORMATS = {
    "x": lambda ratio: f"{ratio:.2f}x",
    "pct": lambda share: f"{100 * share:.0f} %",
    "n": lambda number: f"{number:,.0f}",
    "f": lambda number: f"{number:.3g}",
    "s": str,
}


def claim_of(tree):
    """The expression whose value is shown, and the whole: of `a > b` a, of `low < a < high` a."""
    body = tree.body
    if not isinstance(body, ast.Compare):
        return body, None
    return (body.left if len(body.ops) == 1 else body.comparators[0]), body


def value_of(node, names):
    return eval(compile(ast.Expression(node), "page.md", "eval"), {"__builtins__": {}}, names)


class Text:
    """Sentences with their numbers, and those that the results contradict."""

    def __init__(self, numbers):
        self.numbers = numbers
        self.names = numbers.names()
        self.contradicted = []

    def fill(self, sentence):
        false = []

        def place(match):
            written, expression = match[1], " ".join(match[2].split())
            shown, claim = claim_of(ast.parse(expression, mode="eval"))
            value = value_of(shown, self.names)
            if claim is not None and not value_of(claim, self.names):
                false.append(expression)
            return FORMATS[written](value.middle if isinstance(value, Range) else value)

        try:
            filled = " ".join(re.sub(r"\{(\w+):\s([^}]*)\}", place, sentence).split())
        except LookupError as missing:
            self.contradicted.append((" ".join(sentence.split()), [str(missing)]))
            return f"**Not in these results**: {missing}."
        if not false:
            return filled
        self.contradicted.append((filled, false))
        return f"**Not in these results** ({'; '.join(false)} does not hold): {filled}"

    def page(self, source):
        """A paragraph is a sentence with its claim, a line {table NAME} a table."""
        parts = []
        for paragraph in source.split("\n\n"):
            table = re.fullmatch(r"\{table (\w+)\}", paragraph.strip())
            parts.append(getattr(tables_of_study, table[1])(self.numbers) if table else self.of_paragraph(paragraph))
        return "\n\n".join(part for part in parts if part) + "\n"

    def of_paragraph(self, paragraph):
        """Items of a list are sentences by themselves."""
        items = re.split(r"\n(?=\d+\. |- )", paragraph)
        return "\n".join(self.of_item(item) for item in items)

    def of_item(self, item):
        mark = re.match(r"(\d+\. |- )?", item)[0]
        return textwrap.fill(self.fill(item[len(mark):]), width=120, initial_indent=mark,
                             subsequent_indent=" " * len(mark), break_long_words=False, break_on_hyphens=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path(__file__).with_name("page.md"))
    parser.add_argument("--check", action="store_true", help="end with 1 where a sentence is contradicted")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.results.read_text().splitlines()]
    text = Text(Numbers(rows, options.results.name))
    sys.stdout.write(text.page(options.text.read_text()))
    for sentence, false in text.contradicted:
        print(f"contradicted: {sentence}\n  by: {'; '.join(false)}", file=sys.stderr)
    return 1 if options.check and text.contradicted else 0


if __name__ == "__main__":
    sys.exit(main())
