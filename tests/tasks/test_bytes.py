"""Bits per byte and perplexity, against the model's own losses and the bytes of the text."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import headwise as hw
from headwise.errors import HeadwiseError
from headwise.tasks import batches, encode
from headwise.tasks._metrics import every, score
from headwise.tasks._rows import token_sizes
from words import BERT, word_tokenizer

TEXTS = [
    "the old fox sleeps here",
    "naïve  café — 日本 😀 owls",
    "a red fox",
    "an owl and a red fox and an owl",
]


def test_sizes_sum_to_the_bytes_of_the_text() -> None:
    assert token_sizes("ab  cd", [2, 6]).tolist() == [2, 4]
    assert token_sizes("é日x", [1, 2, 2, 3]).tolist() == [2, 3, 0, 1]
    assert token_sizes("", []).tolist() == []


@pytest.mark.parametrize("name", ["wordpiece", "bytes_bpe", "sentencepiece"])
@pytest.mark.parametrize("limit", [None, 6])
def test_tokens_have_the_bytes_between_them(
    name: str, limit: int | None, request: pytest.FixtureRequest
) -> None:
    tokenizer: Any = request.getfixturevalue(name)
    task = hw.Task("text", data={"test": [(text,) for text in TEXTS]}, kind="next-token")
    encoded = encode(task.split("test"), tokenizer, limit)
    assert encoded.sizes is not None
    assert encoded.special is not None
    assert (encoded.sizes[encoded.special == 1] == 0).all()
    for number, text in enumerate(TEXTS):
        rows = slice(encoded.starts[encoded.rows[number]], encoded.starts[encoded.rows[number + 1]])
        spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        covered = max(end for _, end in spans)
        assert encoded.sizes[rows].sum() == len(text[:covered].encode())


@pytest.mark.parametrize("side", ["right", "left"])
def test_bits_per_byte_and_perplexity_are_those_of_a_direct_computation(bytes_bpe: Any, side: str) -> None:
    torch.manual_seed(0)
    bytes_bpe.padding_side = side
    size = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": len(bytes_bpe)}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)).eval()
    task = hw.Task(
        "text",
        data={"train": [(text,) for text in TEXTS], "validation": [("an owl",)]},
        kind="next-token",
        metric="bits-per-byte",
    )
    nats = tokens = size_ = 0.0
    for text in TEXTS:
        out = bytes_bpe(text, return_offsets_mapping=True)
        ids = torch.tensor([out["input_ids"]])
        with torch.no_grad():
            log_p = model(ids).logits[0, :-1].double().log_softmax(-1)
        nats -= float(log_p.gather(1, ids[0, 1:, None]).sum())
        tokens += ids.shape[1] - 1
        size_ += len(text.encode()) - len(
            text[: out["offset_mapping"][0][1]].encode()
        )  # nothing predicts the first token
    for batch_size in (1, 4):
        found = hw.score(model, task, tokenizer=bytes_bpe, batch_size=batch_size, quiet=True)
        values = found.attrs["performance"]["text"]
        assert values["bits-per-byte"] == pytest.approx(nats / np.log(2) / size_, rel=1e-5)
        assert values["perplexity"] == pytest.approx(np.exp(nats / tokens), rel=1e-5)
        assert 0 <= values["token-accuracy"] <= 1
    lesioned = hw.lesion(model, [task], {}, split="train", tokenizer=bytes_bpe, quiet=True)
    assert float(lesioned.performance.loc["intact"].iloc[0]) == pytest.approx(
        nats / np.log(2) / size_, rel=1e-5
    )


def test_masked_tokens_count_their_own_bytes(wordpiece: Any) -> None:
    task = hw.Task("text", data={"test": [(text,) for text in TEXTS]}, kind="masked-token")
    (batch,) = batches(encode(task.split("test"), wordpiece, 32), 4, mask_rate=0.5)
    from headwise.models._decoders.language import masked_token_output

    logits = torch.zeros(*batch.labels.shape, len(wordpiece))
    found = masked_token_output(logits, batch).prediction
    hidden = batch.labels != -100
    np.testing.assert_array_equal(found[:, 3], (batch.sizes * hidden).sum(1))
    assert float(found[:, 3].sum()) > 0


def test_without_bytes_there_are_no_bits_per_byte() -> None:
    table = np.array([[1, 2, 3.0, 0]])
    assert set(every("next-token", table)) == {"token-accuracy", "perplexity"}
    with pytest.raises(HeadwiseError, match="fast tokenizer"):
        score("bits-per-byte", "next-token", table)
    with pytest.raises(HeadwiseError, match=r"\(examples, 4\)"):
        score("bits-per-byte", "next-token", table[:, :3])


def test_performance_is_that_on_the_examples_that_were_scored() -> None:
    """Estimators differ in how many examples they read by default."""
    words = [*"abcdefgh"]
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(words, 4)) for _ in range(120)]
    task = hw.Task(
        "text", data={"train": [(text,) for text in texts], "validation": [("a b",)]}, kind="next-token"
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, n_positions=16, vocab_size=12)).eval()
    given = {"tokenizer": word_tokenizer([*BERT, *words], "[CLS]", "[SEP]"), "quiet": True}
    hundred = hw.score(model, task, method="shapley", permutations=1, **given)
    assert hundred.attrs["examples"] == 100
    same = hw.score(model, task, examples=100, **given).attrs["performance"]
    assert hundred.attrs["performance"] == same
    ablated = hw.score(model, task, method="ablation", examples=100, **given).attrs["performance"]
    assert ablated["text"] == pytest.approx(same["text"], rel=1e-6)
    assert hw.score(model, task, **given).attrs["performance"] != same
    ranked = hw.score(model, task, method="ablation", iterative=1, examples=100, **given).attrs["performance"]
    assert ranked["text"] == pytest.approx(
        same["text"], rel=1e-6
    )  # of the intact model, not of the last round
