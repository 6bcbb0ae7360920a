"""Rows of options in which every two values of different options that the program takes together meet at least once,
and where one of them changes no bit, in a row of which the bits are compared with those without it."""
import itertools
import random

from options import ABSENT, OF_NAME, OPTIONS, REFUSED, changes_no_bit, holds


def _completed(row, missing, random_of):
    """Takes up option after option with the value of the most pairs that are still missing; None where rules forbid."""
    rules = [*REFUSED, *(rule for name in row if changes_no_bit(name, row) for rule in OF_NAME[name].unless)]
    decided = set(row)

    def is_refused():
        return any(holds(rule, row) for rule in rules if decided.issuperset(rule))

    if is_refused():
        return None
    for option in OPTIONS:
        if option.name in row:
            continue
        decided.add(option.name)
        gain = {value: sum(pair((option.name, value), other) in missing for other in row.items() if other[1] != ABSENT)
                for value in option.values}
        for value in sorted(option.values, key=lambda value: (-gain[value], random_of.random())) + [ABSENT]:
            row[option.name] = value
            if not is_refused():
                break
        else:
            return None
    return {name: value for name, value in row.items() if value != ABSENT}


def pair(one, other):
    return (one, other) if one < other else (other, one)


def all_pairs():
    levels = [[(option.name, value) for value in option.values] for option in OPTIONS]
    return {pair(one, other) for some, others in itertools.combinations(levels, 2) for one in some for other in others}


def pairs_of(row):
    """Those that the row tests. Where one of two changes no bit beside the other, that is so in the row too."""
    def is_tested(one, other):
        return all(changes_no_bit(name, row) or not changes_no_bit(name, dict([one, other]))
                   for name in (one[0], other[0]))

    return {pair(one, other) for one, other in itertools.combinations(row.items(), 2) if is_tested(one, other)}


def table(seed=1, tries=10):
    """The rows, and the pairs that no row can have because one of the two needs or refuses what the other is."""
    random_of = random.Random(seed)
    missing, rows, impossible = all_pairs(), [], []
    while missing:
        one, other = random_of.choice(sorted(missing))
        drawn = [_completed(dict([one, other]), missing, random_of) for _ in range(tries)]
        drawn = [row for row in drawn if row]
        if not drawn:
            missing.discard((one, other))
            impossible.append((one, other))
            continue
        rows.append(max(drawn, key=lambda row: len(pairs_of(row) & missing)))
        missing -= pairs_of(rows[-1])
    return rows, impossible


if __name__ == "__main__":
    made, never = table()
    for made_row in made:
        print(" ".join(f"--{name} {value}" for name, value in made_row.items()))
    print(len(made), "rows,", len(all_pairs()) - len(never), "pairs, never", len(never))
