"""Counts of predicted structures against seqeval and against slow counting."""

from collections import Counter

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score

from headwise.models._decoders.constituents import bracket_counts, unary_chains
from headwise.models._decoders.counts import match_counts
from headwise.models._decoders.spans import choose_flat, flat_spans
from headwise.tasks import _kinds as kinds, _metrics as metrics
from headwise.tasks._labels import binary_spans
from headwise.tasks._sentence import Sentence, Tree


def random_spans(rng: np.random.Generator, n: int) -> list[tuple[int, int, int]]:
    spans, at = [], 0
    while at < n:
        if rng.random() < 0.4:
            end = min(n, at + int(rng.integers(1, 4)))
            spans.append((at, end, int(rng.integers(0, 3))))
            at = end
        at += 1
    return spans


def as_bio(spans: list[tuple[int, int, int]], n: int) -> list[str]:
    tags = ["O"] * n
    for s, e, c in spans:
        tags[s:e] = [f"B-{c}"] + [f"I-{c}"] * (e - s - 1)
    return tags


def test_span_f1_equals_seqeval() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 12, 60).tolist()
    gold, predicted = ([random_spans(rng, n) for n in lengths] for _ in range(2))
    predicted = [g if rng.random() < 0.4 else p for g, p in zip(gold, predicted, strict=True)]
    table = [np.array([(b, *s) for b, spans in enumerate(side) for s in spans]) for side in (predicted, gold)]
    counts = match_counts(table[0], table[1], len(lengths))
    tags = [[as_bio(spans, n) for spans, n in zip(side, lengths, strict=True)] for side in (gold, predicted)]
    assert metrics.score("count-f1", "spans", counts) == pytest.approx(f1_score(tags[0], tags[1]))
    assert counts[:, 1].tolist() == [len(p) for p in predicted]


def test_repeated_rows_must_be_predicted_as_often() -> None:
    row = np.array([[0, 1, 2]])
    assert match_counts(np.repeat(row, 3, 0), np.repeat(row, 2, 0), 2).tolist() == [[2, 3, 2], [0, 0, 0]]
    assert match_counts(np.zeros((0, 3), int), row, 1).tolist() == [[0, 0, 1]]


def test_flat_spans_equal_slow_greedy_choice() -> None:
    scores = torch.randn(20, 7, 7, generator=torch.Generator().manual_seed(0)).triu()
    row, first, last = flat_spans(scores)
    found = {(r, f, e) for r, f, e in zip(row.tolist(), first.tolist(), last.tolist(), strict=True)}
    expected = set()
    for b in range(20):
        taken: list[tuple[int, int]] = []
        order = sorted(((scores[b, i, j].item(), i, j) for i in range(7) for j in range(i, 7)), reverse=True)
        for value, i, j in order:
            if value > 0 and all(j < s or i > e for s, e in taken):
                taken.append((i, j))
        expected |= {(b, i, j) for i, j in taken}
    assert found == expected
    assert (
        len(
            choose_flat(
                torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, 0, dtype=torch.long)
            )[0]
        )
        == 0
    )


TREE = Tree(
    "TOP",
    (
        Tree(
            "S",
            (
                Tree("``", word="``"),
                Tree("NP-SBJ", (Tree("NN", word="time"),)),
                Tree(
                    "VP",
                    (
                        Tree("VBZ", word="gives"),
                        Tree("PRT", (Tree("RP", word="up"),)),
                        Tree("S", (Tree("VP", (Tree("VB", word="go"),)),)),
                    ),
                ),
                Tree(".", word="."),
                Tree("''", word="''"),
            ),
        ),
    ),
)
SENTENCE = Sentence(("``", "time", "gives", "up", "go", ".", "''"), tree=TREE)


def test_binary_tree_is_binary_and_keeps_every_constituent() -> None:
    rows = kinds.rows(SENTENCE, "constituents", "tree")
    names = kinds.class_names((row[2] for row in rows if row[2]), "constituents")
    gold = kinds.to_array(rows, "constituents", {None: -1} | {name: i for i, name in enumerate(names)})
    spans = binary_spans(np.concatenate([np.insert(gold, 0, 0, axis=1), [[1, 0, 1, 2]]]), [7, 1, 4])
    assert np.bincount(spans[:, 0]).tolist() == [13, 1, 7]
    named = {(s, e): names[c - 1] for b, s, e, c in spans.tolist() if c and b == 0}
    assert named == {(0, 7): "S", (1, 2): "NP", (2, 5): "VP", (3, 4): "PRT", (4, 5): "S+VP"}
    assert {(s, e) for b, s, e, c in spans.tolist() if b == 0 and not c and e - s > 1} == {
        (0, 2),
        (0, 5),
        (0, 6),
        (2, 4),
    }


def slow_evalb(tree: Tree) -> Counter[tuple[str, int, int]]:
    """Brackets as evalb counts them: TOP and punctuation deleted, PRT = ADVP, words renumbered."""
    found: Counter[tuple[str, int, int]] = Counter()

    def visit(node: Tree, start: int) -> int:
        if not node.children:
            return start + (node.label not in {",", ":", "``", "''", "."})
        end = start
        for child in node.children:
            end = visit(child, end)
        if node.label != "TOP" and end > start:
            found[("ADVP" if node.label == "PRT" else node.label.split("-")[0], start, end)] += 1
        return end

    visit(tree, 0)
    return found


def test_brackets_equal_slow_evalb() -> None:
    rows = kinds.rows(SENTENCE, "constituents", "tree")
    names = [*kinds.class_names((row[2] for row in rows if row[2]), "constituents"), "ADVP", "X"]
    number = {None: -1} | {name: i for i, name in enumerate(names)}
    gold = kinds.to_array(rows, "constituents", number)
    chains = unary_chains(names)
    # a prediction with S closed before the punctuation, ADVP for PRT, the chain cut to VP, and a bracket over punctuation alone
    guess = [
        (0, 0, 5, number["S"]),
        (0, 1, 2, number["NP"]),
        (0, 2, 5, number["VP"]),
        (0, 3, 4, number["ADVP"]),
        (0, 4, 5, number["VP"]),
    ]
    counts = bracket_counts(
        np.array([*guess, (0, 5, 7, number["X"])]), np.insert(gold, 0, 0, axis=1), [7], chains
    )
    truth = slow_evalb(TREE)
    predicted = Counter(
        {("S", 0, 4): 1, ("NP", 0, 1): 1, ("VP", 1, 4): 1, ("ADVP", 2, 3): 1, ("VP", 3, 4): 1}
    )
    assert counts.tolist() == [[(truth & predicted).total(), predicted.total(), truth.total()]]
    assert counts.tolist() == [[5, 5, 6]]
