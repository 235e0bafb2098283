"""Tiny tokenizers of three kinds, trained on the grammar's own text."""

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from headwise.grammar import treebank
from headwise.tasks import _kept as kept


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    return [sentence.text for sentence in treebank(300, seed=7)]


@pytest.fixture(scope="session")
def wordpiece(corpus: list[str]) -> PreTrainedTokenizerFast:
    """Like BERT's: lower case, [CLS] and [SEP], token types."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        corpus, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    )
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", made.token_to_id("[CLS]")), ("[SEP]", made.token_to_id("[SEP]"))],
    )
    names = {
        "unk_token": "[UNK]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=made, model_input_names=inputs, **names)


@pytest.fixture(scope="session")
def bytes_bpe(corpus: list[str]) -> PreTrainedTokenizerFast:
    """Like GPT-2's: bytes, the space belongs to the token, no special tokens, no padding token."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    )
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


@pytest.fixture(scope="session")
def sentencepiece(corpus: list[str]) -> PreTrainedTokenizerFast:
    """Like Llama's or T5's: unigram pieces that begin with ▁, <s> in front, padding on the left."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=350, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(corpus, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, padding_side="left", model_input_names=["input_ids", "attention_mask"], **names
    )


@pytest.fixture(autouse=True)
def _fresh_memory() -> None:
    kept.forget()
