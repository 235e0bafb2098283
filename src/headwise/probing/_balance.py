"""Equal classes and leakage-free splits for generated probing tasks."""

from collections import Counter, defaultdict
from collections.abc import Mapping
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
        fixed: sentences must not change their split. A form then goes to one of the splits it occurs in, at
            random, and its sentences in the others are dropped; else forms are divided by fraction and their
            sentences go with them.
    """
    splits_of_forms: dict[str, list[str]] = defaultdict(list)
    for split, members in items.items():
        for form in {item.form for item in members}:
            splits_of_forms[form].append(split)
    forms = sorted(splits_of_forms)
    rng = np.random.default_rng(options.seed)
    split_of = {}
    if fixed:
        for form in forms:
            splits = splits_of_forms[form]
            split_of[form] = splits[int(rng.integers(len(splits)))]
    else:
        rows = by_fraction(forms, options.fractions or SPLIT_FRACTIONS, options.seed)
        for split, numbers in rows.items():
            split_of |= {forms[number]: split for number in numbers}
    apart: Items = {split: [] for split in items}
    for split, members in items.items():
        for item in members:
            if not fixed or split_of[item.form] == split:
                apart[split_of[item.form]].append(item)
    return {split: _no_dominant_form(members, rng) for split, members in apart.items()}


def _no_dominant_form(items: list[Item], rng: np.random.Generator) -> list[Item]:
    spread = []
    for label in sorted({item.label for item in items}):
        members = [item for item in items if item.label == label]
        forms = {item.form for item in members}
        most = max(1, int(max(PER_FORM, 1 / len(forms)) * len(members)))
        counts: Counter[str] = Counter()
        for number in rng.permutation(len(members)):
            item = members[number]
            counts[item.form] += 1
            if counts[item.form] <= most:
                spread.append(item)
    return spread


def balanced(name: str, items: Items, options: Generate) -> Items:
    """Items in which every class is equally frequent within every split.

    Raises:
        HeadwiseError: fewer than two classes have enough examples in all splits.
    """
    counts = label_counts(items)
    classes = frequent_enough(counts, options)
    rng = np.random.default_rng(options.seed)
    if name == "Depth" and len(classes) > 1:
        return _length_matched(items, classes, options, rng)
    if len(classes) < 2:
        commonest = ", ".join(f"{label} {n}" for label, n in counts["train"].most_common(5))
        raise HeadwiseError(
            f"{name} cannot be made: at least two classes need {options.least} examples in train and one in "
            f"every other split; train has: {commonest or 'none'}"
        )
    result: Items = {split: [] for split in items}
    for split, members in items.items():
        size = min(_most(split, options), *(counts[split][label] for label in classes))
        for label in sorted(classes):
            of_class = [item for item in members if item.label == label]
            result[split] += _drawn(of_class, size, rng)
    return result


def label_counts(items: Items) -> dict[str, Counter[str]]:
    """How often each label occurs in each split."""
    counts = {}
    for split, members in items.items():
        counts[split] = Counter(item.label for item in members)
    return counts


def frequent_enough(counts: Mapping[str, Counter[str]], options: Generate) -> list[str]:
    """The names that occur often enough in train, and in every other split."""
    names = []
    for name, count in counts["train"].items():
        if count >= options.least and all(of_split[name] for of_split in counts.values()):
            names.append(name)
    return names


def _drawn(items: list[Item], size: int, rng: np.random.Generator) -> list[Item]:
    return [items[number] for number in rng.choice(len(items), size, replace=False)]


def _most(split: str, options: Generate) -> int:
    if options.per_class is None:
        return 1 << 60
    return options.per_class if split == "train" else max(1, options.per_class // 8)


def _length_matched(items: Items, classes: list[str], options: Generate, rng: np.random.Generator) -> Items:
    """Depths with the same lengths, so that length does not tell depth: as many neighbouring depths as have
    enough examples."""
    cells: dict[str, dict[int, dict[int, list[Item]]]] = {}  # split -> length -> depth -> items
    for split, members in items.items():
        cells[split] = defaultdict(lambda: defaultdict(list))
        for item in members:
            cells[split][item.length // STEP][int(item.label)].append(item)

    def sizes(split: str, depths: list[int]) -> dict[int, int]:
        """By length how many items every depth has."""
        return {
            length: min(len(by_depth[depth]) for depth in depths) for length, by_depth in cells[split].items()
        }

    numbers = sorted(map(int, classes))
    best: tuple[int, int, list[int]] = (0, 0, [])
    for start in range(len(numbers)):
        for end in range(start + 2, min(len(numbers), start + DEPTHS) + 1):
            depths = numbers[start:end]
            neighbours = depths[-1] - depths[0] == len(depths) - 1
            totals = {split: sum(sizes(split, depths).values()) for split in cells}
            if neighbours and totals["train"] >= options.least and min(totals.values()) > 0:
                best = max(best, (len(depths), totals["train"], depths))
    depths = best[2]
    if not depths:
        raise HeadwiseError(
            f"Depth cannot be made: no two neighbouring depths share lengths in {options.least} examples of "
            "train"
        )
    result: Items = {split: [] for split in items}
    for split in items:
        matched: dict[int, list[Item]] = {depth: [] for depth in depths}
        for length, count in sorted(sizes(split, depths).items()):
            for depth in depths:
                matched[depth] += _drawn(cells[split][length][depth], count, rng)
        size = len(matched[depths[0]])
        # the same rows of every depth keep lengths matched
        rows = rng.choice(size, min(size, _most(split, options)), replace=False)
        for of_depth in matched.values():
            result[split] += [of_depth[row] for row in rows]
    return result


def as_task(name: str, items: Items, synthetic: bool) -> Task:
    """Balanced items as a task, classes in alphabetical order (numbers by value)."""
    by_value = {item.label: int(item.label) if item.label.isdigit() else 0 for item in items["train"]}
    classes = sorted(by_value, key=lambda label: (by_value[label], label))
    number = {label: i for i, label in enumerate(classes)}
    splits = {}
    for split, members in items.items():
        labels = np.array([number[item.label] for item in members], dtype=np.int64)
        splits[split] = Examples([(item.text,) for item in members], labels, "classes", tuple(classes))
    return Task.from_examples(name, splits, synthetic=synthetic)
