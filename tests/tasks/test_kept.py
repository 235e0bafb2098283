"""Tokenised texts found again: by content, in memory and on the disk, and never a damaged or a foreign file."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwise._base.writing import NoSpace
from headwise.tasks import Examples, _encoding as encoding, _kept as kept, encode

Tokenizer = Any


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path))
    return tmp_path / "tokens"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each tokenisation."""
    seen: list[int] = []
    own = encoding.text_rows
    monkeypatch.setattr(encoding, "text_rows", lambda *given: seen.append(1) or own(*given))
    return seen


def made(count: int, word: str = "tenor") -> Examples:
    return Examples([(f"the {word} sleeps {i}",) for i in range(count)], np.zeros(count, np.int64), "classes")


def test_large_sets_are_found_by_the_next_process(
    cache: Path, calls: list[int], wordpiece: Tokenizer
) -> None:
    first = encode(made(kept.LEAST), wordpiece, 8)
    kept.forget()  # as another process
    again = encode(made(kept.LEAST), wordpiece, 8)
    assert calls == [1]
    for name in ("ids", "starts", "rows", "types"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
    assert [file.suffix for file in cache.iterdir()] == [".safetensors"]


def test_other_texts_tokenizers_and_lengths_are_other_files(
    cache: Path, calls: list[int], wordpiece: Tokenizer, bytes_bpe: Tokenizer
) -> None:
    for examples, tokenizer, length in (
        (made(kept.LEAST), wordpiece, 8),
        (made(kept.LEAST, "drum"), wordpiece, 8),
        (made(kept.LEAST), bytes_bpe, 8),
        (made(kept.LEAST), wordpiece, 6),
    ):
        kept.forget()
        encode(examples, tokenizer, length)
    assert len(calls) == 4
    assert len(list(cache.iterdir())) == 4


def test_small_sets_and_streams_stay_in_memory(cache: Path, wordpiece: Tokenizer) -> None:
    encode(made(kept.LEAST - 1), wordpiece, 8)
    encode(made(kept.LEAST), wordpiece, 8, remember=False)
    assert not cache.exists()


def test_nothing_is_kept_on_the_disk_where_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wordpiece: Tokenizer
) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", "none")
    monkeypatch.chdir(tmp_path)
    encode(made(kept.LEAST), wordpiece, 8)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["a bit", "the end", "everything", "another's"])
def test_a_damaged_file_is_made_again(
    cache: Path, calls: list[int], wordpiece: Tokenizer, damage: str
) -> None:
    first = encode(made(kept.LEAST), wordpiece, 8).ids
    (file,) = cache.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "a bit":
        content[-1] ^= 1
    elif damage == "the end":
        del content[-10:]
    elif damage == "everything":
        content = bytearray(b"no tokens")
    else:  # sound safetensors, but without a checksum
        from safetensors.numpy import save

        content = bytearray(save({"ids": np.zeros(3, np.int32)}))
    file.write_bytes(content)
    for _ in range(2):  # the second time from the file that was made again
        kept.forget()
        np.testing.assert_array_equal(encode(made(kept.LEAST), wordpiece, 8).ids, first)
    assert calls == [1, 1]


def test_a_full_disk_costs_time_only(
    cache: Path, monkeypatch: pytest.MonkeyPatch, wordpiece: Tokenizer
) -> None:
    def full(*given: object) -> None:
        raise NoSpace(cache, "no space left")

    monkeypatch.setattr(kept, "save_tensors", full)
    assert len(encode(made(kept.LEAST), wordpiece, 8)) == kept.LEAST
    assert not list(cache.iterdir())


def test_another_user_s_folder_costs_time_only(
    cache: Path, monkeypatch: pytest.MonkeyPatch, wordpiece: Tokenizer
) -> None:
    """Rust's library has an error of its own for a file that may not be written."""
    from safetensors import SafetensorError

    def refused(*given: object) -> None:
        raise SafetensorError("I/O error: Permission denied (os error 13)")

    monkeypatch.setattr(kept, "save_tensors", refused)
    assert len(encode(made(kept.LEAST), wordpiece, 8)) == kept.LEAST


def test_a_file_whose_time_may_not_be_changed_is_read(
    cache: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch, wordpiece: Tokenizer
) -> None:
    def refused(*given: object) -> None:
        raise PermissionError

    encode(made(kept.LEAST), wordpiece, 8)
    kept.forget()
    monkeypatch.setattr(os, "utime", refused)
    encode(made(kept.LEAST), wordpiece, 8)
    assert calls == [1]


def test_switches_of_a_tokenizer_count(cache: Path, calls: list[int], wordpiece: Tokenizer) -> None:
    examples = Examples(
        [(f"the tenor [SEP] sleeps {i}",) for i in range(kept.LEAST)],
        np.zeros(kept.LEAST, np.int64),
        "classes",
    )
    whole = encode(examples, wordpiece, 16)
    kept.forget()
    wordpiece.split_special_tokens = True
    try:
        assert len(encode(examples, wordpiece, 16).ids) > len(whole.ids)
    finally:
        wordpiece.split_special_tokens = False


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept tokens, before there is anything in it."""
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path))
    (tmp_path / "tokens").mkdir()
    return tmp_path / "tokens"


def test_what_is_not_ours_stays_in_the_folder(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path = tokens
    monkeypatch.setattr(kept, "ROOM", 10_000)
    foreign = [tmp_path / "model.safetensors", tmp_path / "notes.txt"]
    for file in foreign:
        file.write_bytes(bytes(20_000))
    fresh, stale = tmp_path / ".aside-1-x.safetensors", tmp_path / ".aside-2-x.safetensors"
    for file in (fresh, stale):
        file.touch()
    os.utime(stale, (0, 0))
    for key in "abc":
        kept.keep(key * 32, {"ids": np.zeros(1000, np.int32)}, tmp_path)
    assert all(file.exists() for file in (*foreign, fresh))
    assert not stale.exists()
    assert len([file for file in tmp_path.iterdir() if kept.OURS.fullmatch(file.name)]) == 2


def test_what_was_read_longest_ago_goes_first(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path = tokens
    arrays = {"ids": np.zeros(1000, np.int32)}
    monkeypatch.setattr(kept, "ROOM", 3 * 4200)
    a, b, c, d = (letter * 32 for letter in "abcd")
    for number, key in enumerate((a, b, c)):
        kept.keep(key, arrays, tmp_path)
        os.utime(tmp_path / f"{key}.safetensors", (number, number))
    kept.forget()
    assert kept.recalled(a, tmp_path) is not None  # now the last to go
    kept.keep(d, arrays, tmp_path)
    assert sorted(file.stem for file in tmp_path.iterdir()) == [a, c, d]


def test_a_set_that_would_drive_out_all_others_is_not_kept(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "ROOM", 10_000)
    kept.keep("a" * 32, {"ids": np.zeros(1000, np.int32)}, tokens)
    kept.keep("b" * 32, {"ids": np.zeros(3000, np.int32)}, tokens)
    assert [file.stem for file in tokens.iterdir()] == ["a" * 32]


def test_a_folder_that_the_caller_names_keeps_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "ROOM", 10_000)
    for key, size in (("a", 1000), ("b", 1000), ("c", 9000)):
        kept.keep(key * 32, {"ids": np.zeros(size, np.int32)}, tmp_path / "mine")
    assert len(list((tmp_path / "mine").iterdir())) == 3
