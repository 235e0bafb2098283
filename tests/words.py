"""Tokenizers of one token per word, for models that are made in tests."""

from collections.abc import Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LANGUAGE = ["<pad>", "<s>", "</s>"]
ROLES = {
    "[PAD]": "pad_token", "[UNK]": "unk_token", "[CLS]": "cls_token", "[SEP]": "sep_token", "[MASK]": "mask_token",
    "<pad>": "pad_token", "<s>": "bos_token", "</s>": "eos_token",
}  # fmt: skip


def word_tokenizer(words: Sequence[str], before: str = "", after: str = "", **options: Any) -> Any:
    """Words are numbered as they come; those of `ROLES` play theirs, an unknown word is [UNK], else <pad>.

    Args:
        words: all of them, the special ones first.
        before, after: special words that go around a text.
        options: of `PreTrainedTokenizerFast`.
    """
    number = {word: i for i, word in enumerate(words)}
    special = {ROLES[word]: word for word in words if word in ROLES}
    unknown = special.setdefault("unk_token", special["pad_token"])
    inner = Tokenizer(models.WordLevel(number, unk_token=unknown))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if before or after:
        inner.post_processor = processors.TemplateProcessing(
            single=[part for part in (before, "$A", after) if part],
            pair=[part for part in (before, "$A", after, "$B:1", after and f"{after}:1") if part],
            special_tokens=[(word, number[word]) for word in (before, after) if word],
        )
    return PreTrainedTokenizerFast(tokenizer_object=inner, **{**special, **options})


def initial_tokenizer(size: int, **options: Any) -> Any:
    """A token per word, its first letter: for any English text and models of few tokens, `size` in all, the commonest letters first."""
    found = word_tokenizer([*BERT, *"tsawbhcpmfodrlgnieuykvjq"][:size], "[CLS]", "[SEP]", **options)
    first = normalizers.Replace(Regex(r"(?<=\S)\S"), "")
    found.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), first])
    return found
