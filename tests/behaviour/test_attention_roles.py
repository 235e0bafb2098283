"""Shares of attention against a slow loop over the maps of eager attention, one text at a time; planted heads."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from small import TEXTS, build, tokenizer

import headwise as hw
from headwise.behaviour import ROLES
from headwise.errors import HeadwiseError
from words import LANGUAGE, word_tokenizer

ATTENTION = [name for name, role in ROLES.items() if role.family == "attention"]
QUICK: Any = {"roles": ATTENTION, "texts": TEXTS, "sequences": 3, "repeated": 6, "quiet": True, "window": 2}


def tokens_of(family: str) -> Any:
    return tokenizer(begin=family not in ("t5",))


def texts_of(family: str) -> list[list[int]]:
    words = tokens_of(family)
    rows = [words(text)["input_ids"] for text in TEXTS]
    return [row if row[0] == 1 or family == "t5" else [1, *row] for row in rows]


def random_of(found: Any, family: str) -> list[list[int]]:
    """The random sequences, drawn again as documented: numpy's generator, tokens that are not special, without repeats."""
    rng = np.random.default_rng(0)
    usable = [token for token in range(50) if token > 2]
    halves = [rng.choice(usable, 6, replace=False).tolist() for _ in range(3)]
    return [[*([] if family == "t5" else [1]), *half, *half] for half in halves]


def detect(tokens: list[int], role: str) -> np.ndarray[Any, Any]:
    """TransformerLens' detection patterns, written from their definition with loops."""
    n = len(tokens)
    duplicate = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            duplicate[i, j] = tokens[i] == tokens[j]
    if role.startswith("duplicate"):
        return duplicate
    pattern = np.zeros((n, n))
    for i in range(n):
        for j in range(1, i + 1):
            pattern[i, j] = j == i - 1 if role.startswith("previous") else duplicate[i, j - 1]
        if role.startswith("previous") and i == 1:
            pattern[1, 0] = 1
    return pattern


def slow(
    role: str, maps: np.ndarray[Any, Any], asks: list[int], tokens: list[int], rows: list[list[int]]
) -> float:
    """A role of one head on one text: maps (queries, keys)."""
    if ROLES[role].definition.startswith("share of attention on") and role.split("-")[0] in (
        "previous",
        "duplicate",
        "induction",
    ):
        return float((maps * detect(tokens, role)).sum() / maps.sum())
    counts = {token: sum(row.count(token) for row in rows) for row in rows for token in row}
    plain = [counts[token] for token in tokens if token > 2]
    total = hit = above = later = 0.0
    for i in range(len(asks)):
        for j in range(len(tokens)):
            total += maps[i, j]
            hit += (
                maps[i, j]
                * {
                    "self": j == i,
                    "next-token": j == i + 1,
                    "local": 0 < abs(i - j) <= 2,
                    "delimiter": j > 0 and (tokens[j] <= 2 or tokens[j] >= 48),
                    "rare-token": tokens[j] > 2 and counts[tokens[j]] == min(plain),
                    "sink": False,
                    "sink-share": False,
                }[role]
            )
        if i > 0 or asks is not tokens:
            later += 1
            above += maps[i, 0] if role == "sink" else maps[i, 0] > 0.3
    return above / later if role.startswith("sink") else hit / total


@pytest.mark.parametrize(
    ("family", "side"),
    [
        ("gpt2", "left"),
        ("llama", "left"),
        ("gemma", "right"),
        ("bert", "right"),
        ("t5", "right"),
        ("bart", "left"),
    ],
)
def test_shares_are_those_of_a_slow_loop(family: str, side: str) -> None:
    model, words = build(family), tokens_of(family)
    words.padding_side = side
    found = hw.roles(model, words, batch_size=2, **QUICK)
    assert model.config._attn_implementation == "sdpa" or family == "t5"
    heads = hw.Heads(model)
    sources = {"random": random_of(found, family), "text": texts_of(family)}
    for source, rows in sources.items():
        expected: dict[str, Any] = {}
        for row in rows:
            ids = torch.tensor([row])
            start = {"t5": 0, "bart": 2}.get(family)
            pair = {} if start is None else {"decoder_input_ids": torch.tensor([[start, *row]])}
            with torch.no_grad(), heads.recorded(attention=True) as tape:
                model(input_ids=ids, **pair)
            for site in heads.sites:
                asks = row if site.kind == "self" else [start, *row]
                keys = [start, *row] if site.kind == "decoder" else row
                asks = keys if site.kind != "cross" else asks
                for name in (name for name in ATTENTION if ROLES[name].read == source):
                    if site.kind == "cross" and name not in ("sink", "sink-share", "delimiter", "rare-token"):
                        continue
                    if name == "next-token" and not (
                        family == "bert" or (family in ("t5", "bart") and site.kind == "self")
                    ):
                        continue
                    for head in range(4):
                        maps = tape.attention[site.index][0, head].double().numpy()
                        rare = site.kind == "decoder" and name == "rare-token"
                        value = slow_rare(maps, keys, rows) if rare else slow(name, maps, asks, keys, rows)
                        expected.setdefault((name, site.index, head), []).append(value)
        for name in (name for name in ATTENTION if ROLES[name].read == source):
            for site in heads.sites:
                for head in range(4):
                    value = float(found.sel(role=name)[site.index, head])
                    known = expected.get((name, site.index, head))
                    if known is None:
                        assert np.isnan(value), name
                        assert found.attrs["notes"][name]
                    else:
                        assert value == pytest.approx(np.mean(known), abs=1e-5), (name, site)
    assert not np.isnan(found.sel(role="induction")[0]).all()


def slow_rare(maps: np.ndarray[Any, Any], keys: list[int], rows: list[list[int]]) -> float:
    """Rare tokens where a start token stands before the text."""
    counts = {token: sum(row.count(token) for row in rows) for row in rows for token in row}
    least = min(counts[token] for token in keys[1:] if token > 2)
    rare = [token > 2 and counts[token] == least for token in keys]
    return float((maps * np.array(rare)).sum() / maps.sum())


@pytest.mark.parametrize("side", ["right", "left"])
def test_batches_and_padding_change_nothing(side: str) -> None:
    model = build("llama")
    one = hw.roles(model, tokenizer("right"), batch_size=1, **QUICK)
    many = hw.roles(model, tokenizer(side), batch_size=3, **QUICK)
    np.testing.assert_allclose(one, many, atol=1e-6)
    np.testing.assert_allclose(one["chance"], many["chance"], atol=1e-12)


def test_long_texts_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("gpt2")
    whole = hw.roles(model, tokenizer(), **QUICK)
    monkeypatch.setattr("headwise.behaviour._attention.AT_ONCE", 100)
    np.testing.assert_allclose(hw.roles(model, tokenizer(), **QUICK), whole, atol=1e-6)


def test_first_and_current_token_can_be_left_out() -> None:
    model, words = build("gpt2"), tokenizer()
    found = hw.roles(
        model, words, exclude_first=True, exclude_current=True, **{**QUICK, "roles": ["previous-token-text"]}
    )
    heads = hw.Heads(model)
    expected = []
    for row in texts_of("gpt2"):
        with torch.no_grad(), heads.recorded(attention=True) as tape:
            model(torch.tensor([row]))
        maps = tape.attention[1][0, 2].double().numpy()
        maps[:, 0] = 0
        np.fill_diagonal(maps, 0)
        expected.append((maps * detect(row, "previous")).sum() / maps.sum())
    assert float(found[0, 1, 2]) == pytest.approx(np.mean(expected), abs=1e-5)


def test_even_attention_scores_chance() -> None:
    model = build("gpt2")
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight[:, :64] = 0  # no query and no key: attention is even
            block.attn.c_attn.bias[:64] = 0
    found = hw.roles(model, tokenizer(), **QUICK)
    for role in ATTENTION:
        if role != "next-token":
            np.testing.assert_allclose(
                found.sel(role=role), found["chance"].sel(role=role).values[:, None].repeat(4, 1), atol=1e-6
            )


def test_what_cannot_be_is_said() -> None:
    model, words = build("gpt2"), tokenizer()
    with pytest.raises(HeadwiseError, match="give at most 31"):
        hw.roles(model, words, repeated=40, quiet=True)
    with pytest.raises(HeadwiseError, match="does not exist"):
        hw.roles(model, words, texts="nowhere.txt", repeated=5, quiet=True)
    with pytest.raises(HeadwiseError, match=r"'induktion' is unknown \(did you mean 'induction'"):
        hw.roles(model, words, roles=["induktion"])


@pytest.mark.parametrize("examples", [1, 20])
def test_without_texts_the_grammar_writes_some_and_it_is_said(examples: int) -> None:
    from headwise.behaviour._sources import texts_of

    found = texts_of(None, examples, 0)
    assert len(found) == len(set(found)) == examples
    assert found == texts_of(None, examples, 0) != texts_of(None, examples, 1)
    commonest = [word for word, _ in Counter(" ".join(found).split()).most_common(45)]
    known = word_tokenizer([*LANGUAGE, *commonest], "<s>")
    read = hw.roles(build("gpt2"), known, roles=["self"], examples=examples, quiet=True).attrs["texts"]
    assert read["texts"] == examples
    assert read["synthetic"]
