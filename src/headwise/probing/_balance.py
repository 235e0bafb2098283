"""Equal classes and leakage-free splits for generated probing tasks."""

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from headwise.errors import HeadwiseError
from headwise.probing._settings import Generate
from headwise.tasks import SPLIT_FRACTIONS, Examples, Task, by_fraction

PER_FORM = 0.05  # no word form carries more than this share of a class, where there are forms enough
DEPTHS = 8  # classes of Depth at most, as in SentEval
STEP = 3  # lengths are matched in steps of this many words


class Item(NamedTuple):
    """A text with its label; `form` is the word that carries the label, if one does; `length` in words."""

    text: str
    label: str
    form: str = ""
    length: int = 0


Items = dict[str, list[Item]]


def forms_apart(items: Items, options: Generate, fixed: bool) -> Items:
    """Every word form in one split alone, and none dominating its class.

    Args:
        items: by split.
        options: seed and fractions.
        fixed: sentences must not change their split. A form then goes to one of the splits it occurs in, at random, and its sentences in
            the others are dropped; else forms are divided by fraction and their sentences go with them.
    """
    everything = [(split, item) for split, members in items.items() for item in members]
    forms = sorted({item.form for _, item in everything})
    present: dict[str, list[str]] = {form: [] for form in forms}
    for split, members in items.items():
        for form in sorted({item.form for item in members}):
            present[form].append(split)
    rng = np.random.default_rng(options.seed)
    if fixed:
        place = {form: present[form][int(rng.integers(len(present[form])))] for form in forms}
    else:
        parts = by_fraction(forms, options.fractions or SPLIT_FRACTIONS, options.seed)
        place = {forms[i]: split for split, rows in parts.items() for i in rows}
    found: Items = {split: [] for split in items}
    for split, item in everything:
        if not fixed or place[item.form] == split:
            found[place[item.form]].append(item)
    return {split: _no_dominant_form(members, rng) for split, members in found.items()}


def _no_dominant_form(items: list[Item], rng: np.random.Generator) -> list[Item]:
    kept = []
    for label in sorted({item.label for item in items}):
        members = [item for item in items if item.label == label]
        sizes = Counter(item.form for item in members)
        most = max(1, int(max(PER_FORM, 1 / len(sizes)) * len(members)))
        seen: Counter[str] = Counter()
        for i in rng.permutation(len(members)):
            seen[members[i].form] += 1
            if seen[members[i].form] <= most:
                kept.append(members[i])
    return kept


def balanced(name: str, items: Items, options: Generate) -> Items:
    """Items in which every class is equally frequent within every split.

    Raises:
        HeadwiseError: fewer than two classes have enough examples in all splits.
    """
    counts = {split: Counter(item.label for item in members) for split, members in items.items()}
    classes = [
        c
        for c, n in counts["train"].items()
        if n >= options.least and all(counts[split][c] for split in counts)
    ]
    rng = np.random.default_rng(options.seed)
    if name == "Depth" and len(classes) > 1:
        return _length_matched(items, classes, options, rng)
    if len(classes) < 2:
        seen = ", ".join(f"{label} {n}" for label, n in counts["train"].most_common(5)) or "none"
        raise HeadwiseError(
            f"{name} cannot be made: at least two classes need {options.least} examples in train and one in every other split; "
            f"train has: {seen}"
        )
    found = {}
    for split, members in items.items():
        size = min(counts[split][label] for label in classes)
        size = min(size, _most(split, options))
        groups = [[item for item in members if item.label == label] for label in sorted(classes)]
        found[split] = [group[i] for group in groups for i in rng.choice(len(group), size, replace=False)]
    return found


def _most(split: str, options: Generate) -> int:
    if options.per_class is None:
        return 1 << 60
    return options.per_class if split == "train" else max(1, options.per_class // 8)


def _length_matched(items: Items, classes: list[str], options: Generate, rng: np.random.Generator) -> Items:
    """Depths with the same lengths, so that length does not tell depth: as many neighbouring depths as still have enough examples."""
    numbers = sorted(int(label) for label in classes)
    cells: dict[str, dict[int, dict[int, list[Item]]]] = {}  # split -> length -> depth -> items
    for split, members in items.items():
        cells[split] = defaultdict(lambda: defaultdict(list))
        for item in members:
            cells[split][item.length // STEP][int(item.label)].append(item)

    def sizes(split: str, window: list[int]) -> dict[int, int]:
        return {bin_: min(len(depths[d]) for d in window) for bin_, depths in cells[split].items()}

    best: tuple[int, int, list[int]] = (0, 0, [])
    for start in range(len(numbers)):
        for end in range(start + 2, min(len(numbers), start + DEPTHS) + 1):
            window = numbers[start:end]
            totals = {split: sum(sizes(split, window).values()) for split in cells}
            if (
                window[-1] - window[0] == len(window) - 1
                and totals["train"] >= options.least
                and min(totals.values()) > 0
            ):
                best = max(best, (len(window), totals["train"], window))
    if not best[2]:
        raise HeadwiseError(
            f"Depth cannot be made: no two neighbouring depths share lengths in {options.least} examples of train"
        )
    found = {}
    for split in items:
        pool: dict[int, list[Item]] = {d: [] for d in best[2]}
        taken = sizes(split, best[2])
        for bin_, count in sorted(taken.items()):
            for d in best[2]:
                group = cells[split][bin_][d]
                pool[d] += [group[i] for i in rng.choice(len(group), count, replace=False)]
        most = min(len(pool[best[2][0]]), _most(split, options))
        rows = rng.choice(
            len(pool[best[2][0]]), most, replace=False
        )  # the same rows of every depth keep lengths matched
        found[split] = [members[i] for members in pool.values() for i in rows]
    return found


def as_task(name: str, items: Items, synthetic: bool) -> Task:
    """Balanced items as a task, classes in alphabetical order (numbers by value)."""
    labels = sorted(
        {item.label for item in items["train"]},
        key=lambda label: (int(label) if label.isdigit() else 0, label),
    )
    number = {label: i for i, label in enumerate(labels)}
    splits = {}
    for split, members in items.items():
        values = np.array([number[item.label] for item in members], dtype=np.int64)
        splits[split] = Examples([(item.text,) for item in members], values, "classes", tuple(labels))
    return Task.of(name, splits, synthetic=synthetic)
