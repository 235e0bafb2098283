"""Encodings: what the tokenizer says, once, with words mapped to tokens."""

from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast as Tokenizer

from headwise.errors import HeadwiseError
from headwise.grammar import treebank
from headwise.tasks import Examples, Sentence, _encoding as encoding, _kept as kept, encode
from headwise.tasks._rows import cut

KINDS = ("wordpiece", "bytes_bpe", "sentencepiece")
ODD = ["The", "x-ray", "(", "of", ")", "don't", "3,000", "naïve", "…", "日本", "U.S.", "`", "Novak", "."]


def plain(texts: list[tuple[str, ...]], kind: str = "classes") -> Examples:
    return Examples(texts, np.zeros(len(texts), dtype=np.int64), kind)


def words_task(sentences: list[tuple[str, ...]]) -> Examples:
    labels = [np.zeros(len(words), dtype=np.int64) for words in sentences]
    return Examples(
        [(" ".join(w),) for w in sentences],
        labels,
        "tags",
        ("X",),
        sentences=[Sentence(w) for w in sentences],
    )


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_what_the_tokenizer_gives(
    name: str, corpus: list[str], request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    for texts in ([(text,) for text in corpus[:30]], list(zip(corpus[:20], corpus[20:40], strict=True))):
        encoded = encode(plain(texts), tokenizer)
        for row, text in enumerate(texts):
            expected = tokenizer(*text)
            assert (
                encoded.ids[encoded.starts[row] : encoded.starts[row + 1]].tolist() == expected["input_ids"]
            )
            if encoded.types is not None:
                assert (
                    encoded.types[encoded.starts[row] : encoded.starts[row + 1]].tolist()
                    == expected["token_type_ids"]
                )
        assert encoded.lengths.tolist() == np.diff(encoded.starts).tolist()


def test_pairs_are_cut_longest_first(wordpiece: Tokenizer) -> None:
    long, short = "the goalkeeper thanked the tenor " * 20, "the tenor"
    tokens = len(wordpiece(short)["input_ids"]) - 2
    for pair in ((long, short), (short, long)):
        encoded = encode(plain([pair]), wordpiece, 24)
        assert len(encoded.ids) == 24
        side = encoded.types == (1 if pair[1] == short else 0)
        assert side.sum() == tokens + (1 if pair[1] == short else 2)  # the short side is whole


def test_minimal_pairs_are_two_rows_each(wordpiece: Tokenizer) -> None:
    encoded = encode(
        plain([("the tenor sleeps", "the tenor sleep"), ("a", "b b")], "minimal-pairs"), wordpiece
    )
    assert encoded.rows.tolist() == [0, 2, 4]
    assert len(encoded.starts) == 5
    assert encoded.lengths[1] == max(encoded.row_lengths[2:])


@pytest.mark.parametrize("name", KINDS)
def test_words_of_tokens_are_right_for_every_kind_of_tokenizer(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Oracle: the tokens that are said to belong to a word, decoded, are the word."""
    tokenizer = request.getfixturevalue(name)
    sentences = [s.words for s in treebank(40, seed=3)] + [tuple(ODD), ("one",), ("a", "b")]
    encoded = encode(words_task(sentences), tokenizer)
    assert encoded.words is not None
    assert encoded.special is not None
    for i, words in enumerate(sentences):
        span = slice(encoded.starts[i], encoded.starts[i + 1])
        owners, special = encoded.words[span], encoded.special[span]
        assert ((owners < 0) == (special == 1)).all()
        inside = owners[owners >= 0]
        assert set(inside.tolist()) == set(range(len(words)))
        assert (np.diff(inside) >= 0).all()
        ids = encoded.ids[span]
        for number, word in enumerate(words):
            decoded = (
                tokenizer.decode(ids[owners == number]).replace(" ", "").replace("##", "").replace("▁", "")
            )
            if "[UNK]" not in decoded and "<unk>" not in decoded:
                assert decoded.lower().replace("i", "ï") == word.lower().replace("i", "ï"), (word, decoded)


def test_words_agree_with_the_tokenizers_own_mapping(wordpiece: Tokenizer) -> None:
    sentences = [s.words for s in treebank(40, seed=5)] + [tuple(ODD)]
    encoded = encode(words_task(sentences), wordpiece)
    for i, words in enumerate(sentences):
        expected = wordpiece(list(words), is_split_into_words=True)
        assert encoded.ids[encoded.starts[i] : encoded.starts[i + 1]].tolist() == expected["input_ids"]
        assert encoded.words is not None
        owners = [-1 if word is None else word for word in expected.word_ids()]
        assert encoded.words[encoded.starts[i] : encoded.starts[i + 1]].tolist() == owners


def test_a_word_the_tokenizer_drops_is_read_as_unknown(wordpiece: Tokenizer) -> None:
    encoded = encode(words_task([("the", "\u200d\u200b", "tenor")]), wordpiece)
    assert encoded.words is not None
    assert encoded.ids[encoded.words == 1].tolist() == [wordpiece.unk_token_id]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("limit", [12, 17, 40])
def test_every_word_is_owned_once_by_the_window_with_most_context(
    name: str, limit: int, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    sentences = [tuple(word for s in treebank(4, seed=seed) for word in s.words) for seed in (1, 2)] + [
        ("short", "one")
    ]
    whole = encode(words_task(sentences), tokenizer)
    encoded = encode(words_task(sentences), tokenizer, limit)
    assert encoded.row_lengths.max() <= limit
    assert encoded.words is not None
    assert encoded.context_words is not None
    assert whole.words is not None
    for example, words in enumerate(sentences):
        owned: list[int] = []
        best: dict[int, list[tuple[int, int]]] = {}
        for row in range(encoded.rows[example], encoded.rows[example + 1]):
            span = slice(encoded.starts[row], encoded.starts[row + 1])
            mine, seen = encoded.words[span], encoded.context_words[span]
            assert set(mine[mine >= 0]) <= set(seen[seen >= 0])
            owned += sorted(set(mine[mine >= 0].tolist()))
            places = np.flatnonzero(seen >= 0)
            for word in set(seen[places].tolist()):
                at = np.flatnonzero(seen == word)
                left = 10**6 if seen[places[0]] == 0 else at[0] - places[0]
                right = 10**6 if seen[places[-1]] == len(words) - 1 else places[-1] - at[-1]
                best.setdefault(word, []).append((min(left, right), row))
                if word in mine:
                    best[word][-1] = (min(left, right) + 10**9, row)
        assert sorted(owned) == list(range(len(words)))
        for context in best.values():
            own = next(c - 10**9 for c, _ in context if c >= 10**9)
            assert own >= max(c % 10**9 for c, _ in context)


def test_windows_over_a_word_longer_than_a_window() -> None:
    words = np.array([0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 3])
    found = cut(words, 4)
    owned = [set(own[own >= 0].tolist()) for _, _, own in found]
    assert sorted(word for part in owned for word in part) == [0, 1, 2, 3]
    assert all(last - first <= 4 for first, last, _ in found)


def test_raw_text_becomes_consecutive_windows_or_is_cut(bytes_bpe: Tokenizer, corpus: list[str]) -> None:
    text = " ".join(corpus[:5])
    tokens = bytes_bpe(text)["input_ids"]
    encoded = encode(plain([(text,), ("short",)], "next-token"), bytes_bpe, 16)
    assert encoded.ids[: len(tokens)].tolist() == tokens
    assert encoded.rows[1] == -(-len(tokens) // 16)
    assert len(encode(plain([(text,)], "next-token"), bytes_bpe, 16, windows=False).ids) == 16


def test_encodings_are_remembered_in_memory_and_on_disk(
    tmp_path: Path, wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = plain([("the tenor sleeps",), ("a drum",)])
    first = encode(examples, wordpiece, 8, cache=tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    assert not list(tmp_path.glob("*unfinished"))

    def never(*args: object, **options: object) -> None:
        raise AssertionError("tokenised again")

    monkeypatch.setattr(encoding, "text_rows", never)
    assert encode(examples, wordpiece, 8).ids is first.ids
    kept.forget()
    assert encode(examples, wordpiece, 8, cache=tmp_path).ids.tolist() == first.ids.tolist()
    relabelled = Examples(examples.texts, np.ones(2, dtype=np.int64), "classes")
    assert encode(relabelled, wordpiece, 8).ids.tolist() == first.ids.tolist()
    assert encode(relabelled, wordpiece, 8).examples is relabelled
    wordpiece("state left behind", truncation=True, max_length=3)
    assert encode(examples, wordpiece, 8).ids.tolist() == first.ids.tolist()
    for other in (lambda: encode(examples, wordpiece, 9), lambda: encode(plain([("new",)]), wordpiece, 8)):
        with pytest.raises(AssertionError, match="tokenised again"):
            other()


def test_errors_of_encode(wordpiece: Tokenizer) -> None:
    with pytest.raises(
        HeadwiseError,
        match="max_length=2 leaves no room for text next to the special tokens; give at least 3",
    ):
        encode(plain([("a",)]), wordpiece, 2)


def test_no_examples_encode_to_nothing(wordpiece: Tokenizer) -> None:
    encoded = encode(plain([]), wordpiece)
    assert len(encoded) == 0
    assert encoded.lengths.tolist() == []


def test_the_fingerprint_of_a_tokenizer_follows_what_it_does() -> None:
    """Vocabulary, added tokens and sides count; truncation and padding, which come and go, do not; asked twice it is the same."""
    from transformers import AutoTokenizer

    from headwise.heads import default_model
    from headwise.tasks._encoding import tokenizer_fingerprint

    tokenizer = AutoTokenizer.from_pretrained(default_model())
    first = tokenizer_fingerprint(tokenizer)
    assert tokenizer_fingerprint(tokenizer) == first
    tokenizer(["a b", "c"], padding=True, truncation=True, max_length=4)
    assert tokenizer_fingerprint(tokenizer) == first
    tokenizer.truncation_side = "left"
    assert tokenizer_fingerprint(tokenizer) != first
    tokenizer.truncation_side = "right"
    assert tokenizer_fingerprint(tokenizer) == first
    tokenizer.add_tokens(["newword"])
    assert tokenizer_fingerprint(tokenizer) != first
