"""The five word-level decoders: gold losses by slow loops, perfect scores from perfect logits, and independence of the batch."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from headwise import models as decoders
from headwise.errors import HeadwiseError
from headwise.models._decoders.output import SavedTask
from headwise.models._decoders.words import pool_words
from headwise.tasks import KINDS, _metrics as metrics
from headwise.tasks._labels import binary_spans, dense_trees

DIM = 24
LENGTHS = [5, 1, 8, 3]
CLASSES = {
    "tags": ("A", "B", "C"),
    "spans": ("PER", "LOC"),
    "dependencies": ("root", "x", "y"),
    "constituents": ("NP", "S", "S+VP"),
    "roles": ("V", "ARG0", "ARG1", "ARGM-TMP"),
}
NARROW = {
    "tags": {},
    "spans": {"width": 12},
    "dependencies": {"arc": 16, "relation": 8},
    "constituents": {"span": 16, "label": 8},
    "roles": {"width": 12},
}
TREES = [
    [(0, 5, 1), (0, 2, 0), (2, 4, 2), (4, 5, -1)],
    [(0, 1, 0)],
    [(0, 8, 1), (1, 6, 0), (1, 3, 2), (3, 6, 0), (4, 6, 0), (7, 8, 2)],
    [(0, 3, 2)],
]
ROLES = [
    [(1, 1, 2, 0), (1, 0, 1, 1), (1, 2, 5, 2)],
    [],
    [(2, 2, 3, 0), (2, 0, 2, 1), (5, 5, 6, 0), (5, 0, 2, 2), (5, 6, 8, 3)],
    [(0, 0, 1, 0)],
]


def labels_of(kind: str) -> list[Any]:
    rng = np.random.default_rng(0)
    if kind == "tags":
        return [rng.integers(0, 3, n).tolist() for n in LENGTHS]
    if kind == "spans":
        return [[(0, 2, 0), (3, 4, 1)], [], [(1, 5, 1), (5, 6, 0), (6, 8, 0)], [(0, 3, 1)]]
    if kind == "dependencies":
        return [
            [(max(0, i) if i else 0, int(rng.integers(0, 3)), int(i != 2)) for i in range(n)] for n in LENGTHS
        ]
    return TREES if kind == "constituents" else ROLES


def batch_of(kind: str, which: list[int], padding: int = 0) -> Any:
    """A batch of the sentences numbered `which`, as `tasks.collate` gives it, one token a word between two special tokens."""
    n = [LENGTHS[i] for i in which]
    parts = [labels_of(kind)[i] for i in which]
    words = torch.full((len(which), max(n) + 2 + padding), -1)
    for row, size in enumerate(n):
        words[row, 1 : size + 1] = torch.arange(size)
    if kind in ("tags", "dependencies"):
        shape = (len(which), max(n)) if kind == "tags" else (len(which), max(n), 3)
        labels = torch.full(shape, -100)
        if kind == "dependencies":
            labels[..., 2] = 0
        for row, part in enumerate(parts):
            labels[row, : len(part)] = torch.tensor(part)
    else:
        flat = [(row, *item) for row, part in enumerate(parts) for item in part]
        labels = torch.tensor(flat, dtype=torch.long).reshape(-1, 5 if kind == "roles" else 4)
    trees = None
    if kind == "constituents":
        spans = binary_spans(labels.numpy(), n)
        trees = dense_trees([spans[spans[:, 0] == row, 1:] for row in range(len(n))], max(n))
    of = {"n_words": torch.tensor(n), "owner": torch.arange(len(which)), "labels": labels, "trees": trees}
    return SimpleNamespace(words=words, context_words=words, inputs={}, **of)


def states_of(which: list[int], width: int) -> torch.Tensor:
    """Fixed random states per sentence and token, noise where there is padding."""
    states = torch.randn(len(which), width, DIM)
    for row, i in enumerate(which):
        own = torch.randn(LENGTHS[i] + 2, DIM, generator=torch.Generator().manual_seed(i))
        states[row, : LENGTHS[i] + 2] = own
    return states


def decoder_of(kind: str, **options: Any) -> Any:
    torch.manual_seed(1)
    decoder = decoders.build(SavedTask("t", kind, CLASSES[kind], ""), DIM, **{**NARROW[kind], **options})
    with torch.no_grad():
        for parameter in decoder.parameters():  # biaffine weights begin at zero
            if parameter.dim() == 3:
                parameter.normal_(std=0.5)
    return decoder.eval()


def run(decoder: Any, kind: str, which: list[int], padding: int = 0) -> Any:
    batch = batch_of(kind, which, padding)
    with torch.no_grad():
        return decoder(states_of(which, batch.words.shape[1]), batch)


@pytest.mark.parametrize("kind", CLASSES)
def test_losses_and_predictions_do_not_depend_on_neighbours_or_padding(kind: str) -> None:
    decoder = decoder_of(kind)
    together = run(decoder, kind, [0, 1, 2, 3], padding=4)
    assert together.loss.shape == (4,)
    assert torch.isfinite(together.loss).all()
    for i in range(4):
        alone = run(decoder, kind, [i])
        torch.testing.assert_close(alone.loss[0], together.loss[i], rtol=1e-4, atol=1e-5)
        assert alone.prediction[0].tolist() == together.prediction[i].tolist()
    backwards = run(decoder, kind, [3, 2, 1, 0])
    torch.testing.assert_close(backwards.loss.flip(0), together.loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", CLASSES)
def test_a_decoder_can_learn_its_task(kind: str) -> None:
    """On four sentences with fixed states every decoder reaches a perfect score, so that loss and decoding speak of the same thing."""
    decoder = decoder_of(kind, dropout=0.0).train()
    batch = batch_of(kind, [0, 1, 2, 3])
    states = states_of([0, 1, 2, 3], batch.words.shape[1])
    optimizer = torch.optim.Adam(decoder.parameters(), 0.01)
    first = decoder(states, batch).loss.sum().item()
    for _ in range(150):
        optimizer.zero_grad()
        loss = decoder(states, batch).loss.sum()
        loss.backward()
        optimizer.step()
    assert loss.item() < first / 5
    counts = decoder.eval()(states, batch).prediction.numpy()
    for name in KINDS[kind].metrics:
        assert metrics.score(name, kind, counts) == 1
    gold = {
        "tags": [5, 1, 8, 3],
        "spans": [2, 0, 3, 1],
        "dependencies": [4, 1, 7, 2],
        "constituents": [4, 1, 8, 2],
        "roles": [2, 0, 3, 0],
    }
    assert counts[:, 2].tolist() == gold[kind]


def test_tag_loss_by_hand() -> None:
    decoder = decoder_of("tags")
    out = run(decoder, "tags", [0, 1, 2, 3])
    for i, tags in enumerate(labels_of("tags")):
        log = out.logits[i, : len(tags)].log_softmax(-1)
        assert out.loss[i].item() == pytest.approx(
            -np.mean([log[w, t] for w, t in enumerate(tags)]), rel=1e-5
        )
        assert out.prediction[i].tolist() == [
            sum(int(log[w].argmax()) == t for w, t in enumerate(tags)),
            len(tags),
            len(tags),
        ]


def test_span_loss_by_hand() -> None:
    out = run(decoder_of("spans"), "spans", [0, 1, 2, 3])
    for i, spans in enumerate(labels_of("spans")):
        gold = {(s, e - 1): c + 1 for s, e, c in spans}
        n = LENGTHS[i]
        log = out.logits[i].log_softmax(0)  # (classes, first, last)
        slow = -sum(log[gold.get((a, b), 0), a, b] for a in range(n) for b in range(a, n)) / n
        torch.testing.assert_close(out.loss[i], slow, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tree", ["spanning", "projective"])
def test_dependency_counts_leave_punctuation_out(tree: str) -> None:
    decoder = decoder_of("dependencies", tree=tree)
    out = run(decoder, "dependencies", [0, 1, 2, 3])
    assert out.prediction[:, 1].tolist() == [4, 1, 7, 2]
    assert (out.prediction[:, 0] <= out.prediction[:, 3]).all()
    with pytest.raises(HeadwiseError, match="spanning"):
        decoder_of("dependencies", tree="crossing")


def test_constituent_loss_is_minus_the_log_probability_of_tree_and_labels() -> None:
    decoder, batch = decoder_of("constituents"), batch_of("constituents", [3])
    states = states_of([3], batch.words.shape[1])
    with torch.no_grad():
        out = decoder(states, batch)
        posts = decoder.posts(pool_words(states, batch), batch.n_words)
        labels = decoder.label(decoder.label_left(posts), decoder.label_right(posts))[0].log_softmax(
            0
        )  # (labels, posts, posts)
    scores = out.logits[0]
    shared = scores[0, 1] + scores[1, 2] + scores[2, 3] + scores[0, 3]
    left, right = shared + scores[0, 2], shared + scores[1, 3]  # the two binary trees over three words
    gold = {
        (0, 1): 0,
        (1, 2): 0,
        (0, 2): 0,
        (2, 3): 0,
        (0, 3): 3,
    }  # one phrase "S+VP", gathered from the left
    names = sum(labels[name, i, j] for (i, j), name in gold.items())
    torch.testing.assert_close(
        out.loss[0] * 3, torch.logaddexp(left, right) - left - names, rtol=1e-4, atol=1e-4
    )


def test_prediction_is_not_worked_out_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwise.models._decoders import constituents

    calls = []
    real = constituents.cky
    monkeypatch.setattr(constituents, "cky", lambda *a: calls.append(1) or real(*a))
    out = run(decoder_of("constituents"), "constituents", [0, 2])
    assert not calls
    assert out.prediction is out.prediction
    assert len(calls) == 1


def test_gold_candidates_are_always_in_the_role_loss() -> None:
    """Even if ranking hates the true predicate and span, the loss sees them: its gradient reaches their pair."""
    decoder = decoder_of("roles", predicates=0.2, spans=0.2)
    batch = batch_of("roles", [2])
    states = states_of([2], batch.words.shape[1])
    parts = decoder.evidence(pool_words(states, batch), batch.n_words)
    gold_words, gold_spans = torch.zeros(1, 8, dtype=torch.bool), torch.zeros(1, 8, 8, dtype=torch.bool)
    gold_words[0, [2, 5]] = True
    gold_spans[0, [0, 6], [1, 7]] = True
    found = decoder.candidates(parts, gold_words, gold_spans)
    assert {2, 5} <= set(found.word[0][found.word_on[0]].tolist())
    spans = set(
        zip(found.first[0][found.span_on[0]].tolist(), found.last[0][found.span_on[0]].tolist(), strict=True)
    )
    assert {(0, 1), (6, 7)} <= spans
    assert all(a <= b for a, b in spans)
    free = decoder.candidates(parts)
    assert free.word_on.sum() == 2  # ceil(0.2 × 8)
    assert free.span_on.sum() == 2
