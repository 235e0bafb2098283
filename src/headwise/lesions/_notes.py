"""What is said beside the figures of a dissociation: what limits them, why something is missing, and what
would help."""

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from headwise._base.inference import MIN_EXAMPLES
from headwise._base.least import MIN_DRAWS, least_random
from headwise.lesions._statistics import too_few_splits
from headwise.tasks import chance_note

if TYPE_CHECKING:
    from headwise.lesions._result import Dissociation


def notes(result: "Dissociation") -> list[str]:
    """What a reader must know before trusting the figures."""
    a = result.analysis
    sentences = guesses(result)
    for name, intact, chance in zip(a.tasks, a.intact, a.chance, strict=True):
        if intact <= 0:
            sentences.append(
                f"{name}: its metric is {intact:.3g} when intact, so its relative performance and D are not "
                "meaningful"
            )
        elif (
            len(a.tasks) > 1
            and not result.lesions.tasks[name].at_chance
            and (a.performance[:, a.tasks.index(name)] <= chance + 1e-12).all()
        ):
            sentences.append(
                f"{name}: every task's lesion brings it to chance, so they cannot be compared; try a smaller "
                "fraction"
            )
    few = a.examples < MIN_EXAMPLES
    if len(a.draws):
        for name, examples in zip(np.array(a.tasks)[few], a.examples[few], strict=True):
            sentences.append(
                f"{name}: {examples} held-out examples; {MIN_EXAMPLES} are needed for an interval of D"
            )
        for (first, second), bounds in a.pair_bounds().items():
            columns = [first, second]
            if bounds.why and not few[columns].any() and not np.isnan(a.rp[:, columns]).any():
                names = f"{a.tasks[first]} and {a.tasks[second]}"
                sentences.append(f"{names}: no interval of D, since {bounds.why}")
    if result.permutation.note and not np.isnan(result.d):
        sentences.append(f"no permutation test of D: {result.permutation.note}")
    for pair, test in result.tests.items():
        if test.note:
            sentences.append(f"{pair[0]} and {pair[1]}: no test of D, since {test.note}")
    for name, test in result.matched.items():
        if test.note:
            sentences.append(f"{name}: no test of whether its heads are its own, since {test.note}")
    ways = {outcome.ways["note"] for outcome in result.lesions.tasks.values() if "note" in outcome.ways}
    return [*sentences, *sorted(ways)]


def guesses(result: "Dissociation") -> list[str]:
    """A sentence for each task at which the intact model is no better than a guess, on what lesions or else
    on what scores were read."""
    a = result.analysis
    sentences = []
    for name, intact, chance in zip(a.tasks, a.intact, a.chance, strict=True):
        if intact <= 0:
            continue
        if result.lesions.tasks[name].at_chance:
            beyond = "" if intact > chance else ", and nothing can be corrected for chance (D_corrected)"
            sentences.append(chance_note(name, intact, chance, f"its lesions show little{beyond}"))
        elif note := result.scores.attrs.get("at_chance", {}).get(name):
            sentences.append(note)
    return sentences


def other_test(result: "Dissociation") -> str:
    """Whether the re-split test can be run where the permutation test cannot, or what would help; empty once
    it was tried."""
    if result.tests or np.isnan(result.d):
        return ""
    within = result.settings["within_layers"]
    why = {}
    for a, b in combinations(result.tasks, 2):
        why[a, b] = too_few_splits(result.sets[a], result.sets[b], within)
    able = sum(not reason for reason in why.values())
    if able:
        which = "" if able == len(why) else f" for {able} of {len(why)} pairs"
        options = f"--test-draws {MIN_DRAWS}; in Python, test_draws={MIN_DRAWS}"
        return f"the re-split test can be run instead{which} ({options})"
    (a, b), reason = next(iter(why.items()))
    return f"the re-split test has too few splits as well: {a} and {b}: {reason}"


def random_note(draws: int, level: float) -> str:
    """What the rows of random sets are, and whether their range is an interval; empty where none was
    drawn."""
    if draws < 2:
        return "random: one set, without a range" if draws else ""
    if draws < least_random(level):
        needed = f"{least_random(level)} sets are needed for {100 * level:g} %"
        return f"random: mean and range of {draws} sets, not an interval ({needed})"
    inside = (draws - 1) / (draws + 1)
    return (
        f"random: mean and range of {draws} sets; a further one lies within the range with probability "
        f"{100 * inside:.0f} %"
    )
