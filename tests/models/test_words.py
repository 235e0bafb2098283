"""Sub-words to words on the three kinds of tokenizers, attention merging, and windows over long sentences."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from headwise.models._decoders.words import merge_attention, pool_words
from headwise.tasks import Batch, Examples, Sentence, batches, encode

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
SENTENCES = [
    ("The", "unbelievably", "lengthy", "word", "wins", "."),
    ("Ok",),
    ("It", "'s", "re-tokenisation", ",", "naïvely", "done"),
]


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return trained(
        tokenizer, trainers.WordPieceTrainer(vocab_size=60, special_tokens=SPECIAL, show_progress=False)
    )


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=280, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    return trained(tokenizer, trainer)


def sentencepiece() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False
    )
    return trained(tokenizer, trainer)


def trained(tokenizer: Tokenizer, trainer: Any) -> Tokenizer:
    tokenizer.train_from_iterator([" ".join(words) for words in SENTENCES], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def batch_of(make: Any, max_length: int | None = None) -> Batch:
    fast = PreTrainedTokenizerFast(tokenizer_object=make(), pad_token="[PAD]", unk_token="[UNK]")
    sentences = [Sentence(words, upos=("X",) * len(words)) for words in SENTENCES]
    labels = [torch.zeros(len(words), dtype=torch.long).numpy() for words in SENTENCES]
    examples = Examples([(str(s),) for s in sentences], labels, "tags", ("X",), sentences)
    return next(iter(batches(encode(examples, fast, max_length), 3)))


@pytest.mark.parametrize("max_length", [None, 12])
@pytest.mark.parametrize("make", [wordpiece, byte_level, sentencepiece])
def test_pooling_and_merging_equal_slow_loops(make: Any, max_length: int | None) -> None:
    batch = batch_of(make, max_length)
    rows, tokens = batch.inputs["input_ids"].shape
    assert (rows > 3) == (max_length is not None)
    assert batch.words is not None
    assert batch.context_words is not None
    states = torch.randn(rows, tokens, 5)
    attention = torch.randn(rows, 2, tokens, tokens).softmax(-1)
    vectors, merged = pool_words(states, batch), merge_attention(attention, batch)
    assert vectors.shape == (3, 6, 5)
    assert merged.shape == (3, 2, 6, 6)
    several = 0
    for b, example in enumerate(batch.index.tolist()):
        n = len(SENTENCES[example])
        for i in range(n):
            (place,) = {
                r for r in range(rows) if batch.owner[r] == b and (batch.words[r] == i).any()
            }  # one row owns the word
            piece = (batch.words[place] == i).nonzero().flatten().tolist()
            several += len(piece) > 1
            torch.testing.assert_close(vectors[b, i], states[place, piece].mean(0))
            for j in range(n):
                to = (batch.context_words[place] == j).nonzero().flatten().tolist()
                slow = attention[place][:, piece][:, :, to].sum((1, 2)) / len(piece)
                torch.testing.assert_close(merged[b, :, i, j], slow)
        assert (vectors[b, n:] == 0).all()
    assert several >= 3  # the tokenizer does split words


def test_merged_attention_keeps_its_mass_but_for_special_tokens() -> None:
    words = torch.tensor([[-1, 0, 1, 1, 2, -1]])
    batch = SimpleNamespace(
        words=words, context_words=words, n_words=torch.tensor([3]), owner=torch.tensor([0])
    )
    attention = torch.zeros(1, 6, 6)
    attention[:, :, 2], attention[:, :, 3], attention[:, :, 0] = 0.5, 0.25, 0.25
    torch.testing.assert_close(merge_attention(attention, batch)[0], torch.tensor([[0.0, 0.75, 0.0]] * 3))
