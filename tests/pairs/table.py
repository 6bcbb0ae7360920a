"""Rows of options in which every two values of different options that the program takes together meet, and each value
meets the absence of each other option.

Where one of the two changes no bit, they meet in a row whose bits are compared with those without it, if there can be
such a row; two that both ask for another training merely run together.
"""
import itertools
import random

from options import ABSENT, OF_NAME, OPTIONS, REFUSED, changes_no_bit, holds


def needs_of(row):
    """Names of options without which one of the row is refused."""
    given = {name for name, value in row.items() if value != ABSENT}
    names = set(given)
    while more := {other for rule in REFUSED for other, values in rule.items()
                   if values and ABSENT in values and len(rule) == 2 and names & (set(rule) - {other})} - names:
        names |= more
    return names - given


def is_implied(two):
    """Whether rules refuse two values, whatever the options have that the two need."""
    row = dict(two)
    needed = sorted(needs_of(row))
    return all(any(row.keys() | set(needed) >= rule.keys() and holds(rule, {**dict(zip(needed, values)), **row})
                   for rule in REFUSED)
               for values in itertools.product(*(OF_NAME[name].values for name in needed)))


def _completed(row, missing, random_of, compared):
    """Takes up option after option, or its absence, by how many pairs are still missing; None where rules forbid."""
    rules = list(REFUSED)
    if compared:
        rules += [rule for name, value in row.items() if value != ABSENT and OF_NAME[name].same
                  for rule in OF_NAME[name].unless]
    needs = needs_of(row)
    decided = set(row)

    def is_refused():
        return any(holds(rule, row) for rule in rules if decided.issuperset(rule))

    if is_refused():
        return None
    for option in sorted(OPTIONS, key=lambda option: option.name not in needs):
        if option.name in row:
            continue
        decided.add(option.name)
        levels = option.values if option.name in needs else (*option.values, ABSENT)
        gain = {value: sum(pair((option.name, value), other) in missing for other in row.items()) for value in levels}
        for value in sorted(levels, key=lambda value: (-gain[value], random_of.random())):
            row[option.name] = value
            if not is_refused():
                break
        else:
            return None
    return row


def pair(one, other):
    return (one, other) if one < other else (other, one)


def all_pairs():
    levels = [[(option.name, value) for value in (*option.values, ABSENT)] for option in OPTIONS]
    return {pair(one, other) for some, others in itertools.combinations(levels, 2) for one in some for other in others
            if one[1] != ABSENT or other[1] != ABSENT}


def table(seed=1, tries=10):
    """The rows; the pairs that no row can compare; those that none can have, as one needs or refuses the other."""
    random_of = random.Random(seed)
    missing, rows, uncompared, impossible = all_pairs(), [], set(), []

    def tested(row):
        return {two for two in itertools.starmap(pair, itertools.combinations(row.items(), 2))
                if two in uncompared or all(value == ABSENT or not OF_NAME[name].same or changes_no_bit(name, row)
                                            for name, value in two)}

    while missing:
        two = random_of.choice(sorted(missing))
        drawn = []
        for compared in (True, False):
            drawn = drawn or [row for row in (_completed(dict(two), missing, random_of, compared) for _ in range(tries))
                              if row]
            if compared and not drawn:
                uncompared.add(two)
        if drawn:
            best = max(drawn, key=lambda row: len(tested(row) & missing))
            missing -= tested(best)
            rows.append({name: value for name, value in best.items() if value != ABSENT})
        else:
            missing.discard(two)
            impossible.append(two)
    return rows, uncompared - set(impossible), impossible


if __name__ == "__main__":
    made, ran, never = table()
    for made_row in made:
        print(" ".join(f"--{name} {value}" for name, value in made_row.items()))
    values = {two for two in all_pairs() - set(never) if all(value != ABSENT for _, value in two)}
    both = sum(not any(OF_NAME[name].same for name, _ in two) for two in values)
    print(f"{len(made)} rows, {len(values)} pairs of values, of which {both} are of two that ask for another training "
          f"and {len(values & ran)} cannot be compared, and {len(all_pairs() - set(never)) - len(values)} of a value "
          f"and an absence; {len(never)} are refused")
