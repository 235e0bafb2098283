"""AG-Pair: pairs of news articles, of the same topic or not (functional-specialization, appendix E)."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.tasks._examples import Examples
from headwise.tasks._kinds import KINDS

CLASSES = ("different topic", "same topic")
TRIES = 50
Pairs = list[tuple[int, int]]


def ag_pair(news: Examples, seed: int = 0) -> Examples:
    """Pairs made of classified articles: as many pairs as articles, half of the same topic, every article in exactly two, never with
    itself, and no pair twice. Each of an article's two partners is of its own topic or of another with equal chance.

    If the number of articles is odd, one of the largest topic is left out.

    Args:
        news: articles with topics (`kind` classes, single texts).
        seed: another seed, other pairs; the same seed, the same.

    Raises:
        HeadwiseError: not single classified texts, or topics too uneven or too small to pair.
    """
    if not KINDS[news.kind].one_class or news.pairs:
        raise HeadwiseError(
            f"ag_pair needs single texts with classes, got kind {news.kind!r}{' of pairs' if news.pairs else ''}"
        )
    rng = np.random.default_rng(seed)
    same, different = pair_up(np.asarray(news.labels), rng)
    pairs, labels = [*same, *different], [1] * len(same) + [0] * len(different)
    order = rng.permutation(len(pairs))
    texts: list[tuple[str, ...]] = [(news.texts[pairs[i][0]][0], news.texts[pairs[i][1]][0]) for i in order]
    return Examples(texts, np.array(labels, dtype=np.int64)[order], "classes", CLASSES)


def pair_up(topics: NDArray[np.int64], rng: np.random.Generator) -> tuple[Pairs, Pairs]:
    """Pairs of article numbers: those of the same topic, and those of different topics."""
    members = {
        int(topic): rng.permutation(np.flatnonzero(topics == topic)).tolist() for topic in np.unique(topics)
    }
    if len(topics) % 2 and members:
        members[max(members, key=lambda topic: len(members[topic]))].pop()
    sizes = [len(group) for group in members.values()]
    message = f"topics of sizes {sizes} cannot be paired: none may exceed half of all articles, and each needs at least a few"
    if not sizes or max(sizes) > sum(sizes) / 2:
        raise HeadwiseError(message)
    for _ in range(TRIES):  # only topics of a handful of articles ever need a second draw
        same, different = draw(list(members.values()), rng)
        inside = [match(slots, lambda a, b: a != b, rng) for slots in same]
        outside = match(different, lambda a, b: bool(topics[a] != topics[b]), rng)
        if outside is not None and all(pairs is not None for pairs in inside):
            return [pair for pairs in inside if pairs is not None for pair in pairs], outside
    raise HeadwiseError(message)


def draw(groups: Sequence[list[int]], rng: np.random.Generator) -> tuple[list[list[int]], list[int]]:
    """Every article has two slots; which of a topic's slots ask for a partner of the same topic is drawn, half of them.

    Half of a topic's slots is an odd number where its size is: such topics take turns at one slot less and one more,
    which leaves the classes equal.
    """
    same: list[list[int]] = []
    different: list[int] = []
    fewer = True
    for group in sorted(groups, key=len):
        slots = rng.permutation(group + group).tolist()
        size = len(group)
        if size % 2:
            size += -1 if fewer else 1
            fewer = not fewer
        same.append(slots[:size])
        different += slots[size:]
    return same, rng.permutation(different).tolist()


def match(
    slots: Sequence[int], allowed: Callable[[int, int], bool], rng: np.random.Generator
) -> Pairs | None:
    """Slots in random order, paired with their neighbours; a pair that is not allowed, or there twice, trades partners with another.

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
        for j in _others(len(pairs), rng):
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


def _others(size: int, rng: np.random.Generator) -> Iterator[int]:
    """Places to trade with: a few at random, which nearly always suffices, then every one."""
    yield from rng.integers(size, size=20).tolist()
    for _ in range(3):  # each look flips a coin over how to trade
        yield from rng.permutation(size).tolist()
