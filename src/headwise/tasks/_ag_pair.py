"""AG-Pair: pairs of news articles, of the same topic or not (functional-specialization, appendix E)."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.tasks._examples import Examples
from headwise.tasks._kinds import KINDS

CLASSES = ("different topic", "same topic")
TRIES = 50
Pairs = list[tuple[int, int]]


def ag_pair(news: Examples, seed: int = 0) -> Examples:
    """Pairs made of classified articles: as many pairs as articles, half of the same topic, every article in
    exactly two, never with itself, and no pair twice. Each of an article's two partners is of its own topic
    or of another with equal chance.

    If the number of articles is odd, one of the largest topic is left out.

    Args:
        news: articles with topics (`kind` classes, single texts).
        seed: another seed, other pairs; the same seed, the same.

    Raises:
        HeadwiseError: not single classified texts, or topics too uneven or too small to pair.
    """
    if not KINDS[news.kind].one_class or news.pairs:
        of_pairs = " of pairs" if news.pairs else ""
        raise HeadwiseError(f"ag_pair needs single texts with classes, got kind {news.kind!r}{of_pairs}")
    rng = np.random.default_rng(seed)
    same, different = pair_up(np.asarray(news.labels), rng)
    pairs, labels = [*same, *different], [1] * len(same) + [0] * len(different)
    order = rng.permutation(len(pairs))
    texts: list[tuple[str, ...]] = []
    for number in order:
        first, second = pairs[number]
        texts.append((*news.texts[first], *news.texts[second]))
    return Examples(texts, np.array(labels, dtype=np.int64)[order], "classes", CLASSES)


def pair_up(topics: NDArray[np.int64], rng: np.random.Generator) -> tuple[Pairs, Pairs]:
    """Pairs of article numbers: those of the same topic, and those of different topics."""
    groups = [rng.permutation(np.flatnonzero(topics == topic)).tolist() for topic in np.unique(topics)]
    if len(topics) % 2:
        max(groups, key=len).pop()
    sizes = [len(group) for group in groups]
    message = (
        f"topics of sizes {sizes} cannot be paired: none may exceed half of all articles, "
        "and each needs at least a few"
    )
    if not sizes or max(sizes) > sum(sizes) / 2:
        raise HeadwiseError(message)
    for _ in range(TRIES):  # only topics of a handful of articles ever need a second draw
        same_slots, different_slots = draw(groups, rng)
        same = [match(slots, lambda a, b: a != b, rng) for slots in same_slots]
        different = match(different_slots, lambda a, b: bool(topics[a] != topics[b]), rng)
        if different is not None and None not in same:
            return list(chain.from_iterable(same)), different  # type: ignore[arg-type]
    raise HeadwiseError(message)


def draw(groups: Sequence[list[int]], rng: np.random.Generator) -> tuple[list[list[int]], list[int]]:
    """Every article has two slots; which of a topic's slots ask for a partner of the same topic is drawn,
    half of them.

    Half of a topic's slots is an odd number where its size is: such topics take turns at one slot less and
    one more, which leaves the classes equal.
    """
    same: list[list[int]] = []
    different: list[int] = []
    odd_step = -1
    for group in sorted(groups, key=len):
        slots = rng.permutation(group + group).tolist()
        size = len(group)
        if size % 2:
            size += odd_step
            odd_step = -odd_step
        same.append(slots[:size])
        different += slots[size:]
    return same, rng.permutation(different).tolist()


def match(
    slots: Sequence[int], allowed: Callable[[int, int], bool], rng: np.random.Generator
) -> Pairs | None:
    """Slots in random order, paired with their neighbours; a pair that is not allowed, or there twice, trades
    partners with another.

    Returns:
        The pairs, or None where no trade helps.
    """
    pairs = [(slots[i], slots[i + 1]) for i in range(0, len(slots), 2)]
    counts = Counter(frozenset(pair) for pair in pairs)

    def good(pair: tuple[int, int], most: int) -> bool:
        return allowed(*pair) and counts[frozenset(pair)] <= most

    for i in range(len(pairs)):
        if good(pairs[i], 1):
            continue
        for j in _partners(len(pairs), rng):
            (a, b), (c, d) = pairs[i], pairs[j]
            new = ((a, c), (b, d)) if rng.random() < 0.5 else ((a, d), (b, c))
            if j != i and frozenset(new[0]) != frozenset(new[1]) and all(good(pair, 0) for pair in new):
                counts.subtract([frozenset(pairs[i]), frozenset(pairs[j])])
                counts.update(frozenset(pair) for pair in new)
                pairs[i], pairs[j] = new
                break
        else:
            return None
    return pairs


def _partners(size: int, rng: np.random.Generator) -> Iterator[int]:
    """Numbers of pairs to trade with: a few at random, which nearly always suffices, then every pair."""
    yield from rng.integers(size, size=20).tolist()
    for _ in range(3):  # each look flips a coin over how to trade
        yield from rng.permutation(size).tolist()
