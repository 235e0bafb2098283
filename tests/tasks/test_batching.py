"""Batches: every example once, little padding, the same for the same seed, and equal to a slow loop."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast as Tokenizer

from headwise import grammar
from headwise.errors import HeadwiseError
from headwise.tasks import Batch, Encoded, Examples, batches, encode
from headwise.tasks._batches import collate, shuffled_plan, sorted_plan

KINDS = ("wordpiece", "bytes_bpe", "sentencepiece")


def classes(texts: list[str]) -> Examples:
    return Examples([(text,) for text in texts], np.arange(len(texts)) % 3, "classes", ("a", "b", "c"))


def slow(encoded: Encoded, chosen: list[int]) -> tuple[list[list[int]], list[list[int]]]:
    """Input ids and attention mask by a plain loop."""
    rows = [r for i in chosen for r in range(encoded.rows[i], encoded.rows[i + 1])]
    width = max(encoded.row_lengths[r] for r in rows)
    ids, mask = [], []
    for r in rows:
        row = encoded.ids[encoded.starts[r] : encoded.starts[r + 1]].tolist()
        pads = width - len(row)
        ids.append([encoded.pad] * pads + row if encoded.pads_left else row + [encoded.pad] * pads)
        mask.append([0] * pads + [1] * len(row) if encoded.pads_left else [1] * len(row) + [0] * pads)
    return ids, mask


@pytest.mark.parametrize("name", KINDS)
def test_collation_equals_a_slow_loop(name: str, corpus: list[str], request: pytest.FixtureRequest) -> None:
    encoded = encode(classes(corpus[:60]), request.getfixturevalue(name))
    for batch in batches(encoded, 7, seed=1):
        ids, mask = slow(encoded, batch.index.tolist())
        assert batch.inputs["input_ids"].tolist() == ids
        assert batch.inputs["attention_mask"].tolist() == mask
        assert batch.labels.tolist() == (batch.index % 3).tolist()
        assert batch.inputs["input_ids"].dtype == torch.int64
        assert ("token_type_ids" in batch.inputs) == (name == "wordpiece")
        if encoded.pads_left:  # positions count real tokens, so that padding changes nothing
            for row, real in zip(batch.inputs["position_ids"], batch.inputs["attention_mask"], strict=True):
                assert row[real == 1].tolist() == list(range(int(real.sum())))


def test_evaluation_is_sorted_and_training_shuffled_in_buckets(
    wordpiece: Tokenizer, corpus: list[str]
) -> None:
    encoded = encode(classes(corpus), wordpiece)
    plain = batches(encoded, 16)
    widths = [batch.inputs["input_ids"].shape[1] for batch in plain]
    assert widths == sorted(widths, reverse=True)
    shuffled = batches(encoded, 16, seed=5)
    for some in (plain, shuffled):
        assert sorted(i for batch in some for i in batch.index.tolist()) == list(range(len(corpus)))
        assert len(some) == -(-len(corpus) // 16)
    again = [batch.index.tolist() for batch in batches(encoded, 16, seed=5)]
    assert [batch.index.tolist() for batch in shuffled] == again
    assert [batch.index.tolist() for batch in batches(encoded, 16, seed=5, epoch=1)] != again
    widths = [batch.inputs["input_ids"].shape[1] for batch in shuffled]
    assert widths not in (sorted(widths), sorted(widths, reverse=True))
    padded = sum(batch.inputs["input_ids"].numel() for batch in shuffled)
    assert padded / len(encoded.ids) < 1.1  # random batches would pad to about 1.6 here
    assert all(len(batch) == 16 for batch in batches(encoded, 16, seed=5, drop_last=True))
    assert batches(encoded, 16, pad_to_multiple=8)[0].inputs["input_ids"].shape[1] % 8 == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(1, 40), st.integers(0, 5))
def test_plans_cover_every_example_once(lengths: list[int], size: int, seed: int) -> None:
    plan = shuffled_plan(np.array(lengths), size, np.random.default_rng(seed))
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    assert sum(len(part) < size for part in plan) <= 1
    values, order = np.array(lengths), np.argsort(-np.array(lengths), kind="stable")
    tight = sorted_plan(values[order], order, size, 100)
    assert np.concatenate(tight).tolist() == order.tolist()
    assert all(len(part) <= size for part in tight)
    assert all(
        len(part) == size or len(part) * values[part].max() >= 100 for part in tight[:-1]
    )  # none is idle
    small = sorted_plan(values[order], order, size, None, 100)
    assert np.concatenate(small).tolist() == order.tolist()
    assert all(
        len(part) == 1 or (len(part) <= size and len(part) * values[part].max() <= 100) for part in small
    )
    full = [len(part) == size or (len(part) + 1) * values[part].max() > 100 for part in small[:-1]]
    assert all(full)  # none is smaller than it has to be


def test_a_batch_that_has_enough_ends_where_rows_get_much_shorter() -> None:
    lengths = np.array([90, 85, 80, 30, 29, 28, 9, 9])
    cut = [part.tolist() for part in sorted_plan(lengths, np.arange(8), 32, 100)]
    assert cut == [
        [0, 1, 2],
        [3, 4, 5, 6],
        [7],
    ]  # the second has 90 tokens before its first short row: not enough
    assert [len(part) for part in sorted_plan(lengths, np.arange(8), 2, None)] == [2, 2, 2, 2]


def test_batches_can_be_reached_by_number_and_sliced(wordpiece: Tokenizer, corpus: list[str]) -> None:
    order = batches(encode(classes(corpus[:50]), wordpiece), 8, seed=0)
    walked = list(order)
    assert order[3].index.tolist() == walked[3].index.tolist()
    assert [batch.index.tolist() for batch in order[4:]] == [batch.index.tolist() for batch in walked[4:]]
    with pytest.raises(HeadwiseError, match="batch_size must be at least 1, got 0"):
        batches(order.encoded, 0)


def test_minimal_pairs_and_next_tokens(wordpiece: Tokenizer, bytes_bpe: Tokenizer) -> None:
    texts: list[tuple[str, ...]] = [
        ("the tenor sleeps", "the tenor sleep badly"),
        ("a drum", "drum a"),
        ("one", "two"),
    ]
    encoded = encode(Examples(texts, np.zeros(3, np.int64), "minimal-pairs"), wordpiece)
    for batch in batches(encoded, 2):
        assert batch.owner.tolist() == [i for i in range(len(batch)) for _ in range(2)]
        for row, example in enumerate(batch.index[batch.owner].tolist()):
            expected = wordpiece(texts[example][row % 2])["input_ids"]
            assert (
                batch.inputs["input_ids"][row][batch.inputs["attention_mask"][row] == 1].tolist() == expected
            )
            labels = batch.labels[row]
            assert labels[labels >= 0].tolist() == expected[1:-1]  # special tokens are not predicted
    raw = encode(
        Examples([("the tenor sleeps",), ("a drum",)], np.zeros(2, np.int64), "next-token"), bytes_bpe, 4
    )
    batch = batches(raw, 2)[0]
    assert ((batch.labels == batch.inputs["input_ids"]) | (batch.inputs["attention_mask"] == 0)).all()
    assert (batch.labels[batch.inputs["attention_mask"] == 0] == -100).all()


def test_masks_depend_on_seed_and_text_alone(wordpiece: Tokenizer, corpus: list[str]) -> None:
    examples = Examples([(text,) for text in corpus], np.zeros(len(corpus), np.int64), "masked-token")
    encoded = encode(examples, wordpiece)

    def rows(batch: Batch) -> dict[int, tuple[list[int], list[int]]]:
        found = {}
        for row, i in enumerate(batch.index.tolist()):
            real = batch.inputs["attention_mask"][row] == 1
            found[i] = (batch.inputs["input_ids"][row][real].tolist(), batch.labels[row][real].tolist())
        return found

    one = {i: row for batch in batches(encoded, 1, mask_seed=3) for i, row in rows(batch).items()}
    many = {
        i: row
        for batch in batches(encoded, 32, seed=9, mask_seed=3, pad_to_multiple=16)
        for i, row in rows(batch).items()
    }
    assert one == many
    part = encode(examples.subset([5, 6, 7]), wordpiece)
    assert rows(batches(part, 3, mask_seed=3)[0])[1] == one[6]
    other = {i: row for batch in batches(encoded, 32, mask_seed=4) for i, row in rows(batch).items()}
    assert sum(one[i][1] != other[i][1] for i in one) > 0.9 * len(one)
    chosen = fate = total = random = 0
    for i, (ids, labels) in one.items():
        true = encoded.ids[encoded.starts[i] : encoded.starts[i + 1]].tolist()
        predicted = [t for t, label in enumerate(labels) if label != -100]
        assert predicted  # at least one a text
        assert all(labels[t] == true[t] for t in predicted)
        assert all(ids[t] == true[t] for t in range(len(ids)) if t not in predicted)
        assert not {0, len(ids) - 1} & set(predicted)
        chosen += len(predicted)
        total += len(ids) - 2
        fate += sum(ids[t] == wordpiece.mask_token_id for t in predicted)
        random += sum(ids[t] not in (wordpiece.mask_token_id, true[t]) for t in predicted)
    assert 0.13 < chosen / total < 0.18
    assert 0.75 < fate / chosen < 0.85
    assert 0.06 < random / chosen < 0.14


def test_masking_needs_a_mask_token(bytes_bpe: Tokenizer, wordpiece: Tokenizer) -> None:
    examples = Examples([("the tenor",)], np.zeros(1, np.int64), "masked-token")
    with pytest.raises(HeadwiseError, match="no mask token"):
        batches(encode(examples, bytes_bpe), 1)[0]
    with pytest.raises(HeadwiseError, match="mask_rate must be above 0"):
        batches(encode(examples, wordpiece), 1, mask_rate=0)[0]


@pytest.mark.parametrize("limit", [None, 20])
def test_structured_labels_come_back_from_the_batch(limit: int | None, wordpiece: Tokenizer) -> None:
    for task in grammar.tasks(["pos", "ner", "dep", "con", "srl"], size=40, held_out=16):
        examples = task.split("train")
        encoded = encode(examples, wordpiece, limit)
        seen = 0
        for batch in batches(encoded, 6, seed=2):
            assert batch.n_words is not None
            for row, i in enumerate(batch.index.tolist()):
                gold, size = examples.labels[i], len(examples.sentences[i])  # type: ignore[index]
                assert batch.n_words[row] == size
                if task.kind in ("tags", "dependencies"):
                    assert batch.labels[row, :size].tolist() == gold.tolist()
                    rest = batch.labels[row, size:]
                    assert (rest == (-100 if task.kind == "tags" else torch.tensor([-100, -100, 0]))).all()
                else:
                    assert batch.labels[batch.labels[:, 0] == row][:, 1:].tolist() == gold.tolist()
                seen += 1
        assert seen == 40


def test_windows_of_a_sentence_share_a_batch(wordpiece: Tokenizer) -> None:
    examples = grammar.task("pos", size=30, held_out=16).split("train")
    encoded = encode(examples, wordpiece, 14)
    assert encoded.rows[-1] > len(examples)
    for batch in batches(encoded, 5, seed=0):
        assert batch.words is not None
        assert batch.n_words is not None
        for example in range(len(batch)):
            owned = batch.words[batch.owner == example]
            assert sorted(set(owned[owned >= 0].tolist())) == list(range(int(batch.n_words[example])))


def test_batches_move_as_a_whole(wordpiece: Tokenizer) -> None:
    task = grammar.task("pos", size=16, held_out=16)
    batch = batches(encode(task.split("train"), wordpiece), 4)[0]
    moved = batch.to("meta")
    tensors = [
        *moved.inputs.values(),
        moved.labels,
        moved.index,
        moved.owner,
        moved.words,
        moved.context_words,
        moved.n_words,
    ]
    assert all(tensor is not None and tensor.device.type == "meta" for tensor in tensors)
    assert collate(encode(task.split("train"), wordpiece), np.array([3, 1])).index.tolist() == [3, 1]


def test_left_padding_changes_no_result(sentencepiece: Tokenizer, corpus: list[str]) -> None:
    config = GPT2Config(vocab_size=len(sentencepiece), n_positions=128, n_embd=16, n_layer=2, n_head=2)
    torch.manual_seed(0)
    model = GPT2Model(config).eval()
    encoded = encode(classes(corpus[:12]), sentencepiece)
    assert encoded.pads_left

    def last(size: int) -> torch.Tensor:
        found = torch.zeros(12, 16)
        for batch in batches(encoded, size, pad_to_multiple=8 if size > 1 else None):
            with torch.no_grad():
                found[batch.index] = model(**batch.inputs).last_hidden_state[:, -1]
        return found

    torch.testing.assert_close(last(1), last(12), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("task", ["pos", "ner", "dep", "con", "srl", "topic", "pairs"])
def test_a_repeated_batch_is_the_batch_of_the_repeated_examples(task: str, wordpiece: Tokenizer) -> None:
    if task == "pairs":
        examples = Examples(
            [("a cat runs", "a cat run"), ("dogs bark", "dogs barks loud")] * 4,
            np.zeros(8, np.int64),
            "minimal-pairs",
        )
    else:
        examples = grammar.task(task, size=30, held_out=16).split("train")
    encoded = encode(examples, wordpiece, 14)  # short enough for several windows of a sentence
    chosen = np.array([5, 0, 3])
    wide, expected = collate(encoded, chosen).repeated(3), collate(encoded, np.tile(chosen, 3))
    assert len(wide) == 9
    for name in ("labels", "index", "owner", "words", "context_words", "n_words"):
        one, other = getattr(wide, name), getattr(expected, name)
        assert (one is None and other is None) or torch.equal(one, other), name
    for name, value in expected.inputs.items():
        assert torch.equal(wide.inputs[name], value)
